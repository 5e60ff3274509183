"""A small wire client for what librdkafka does not offer: raw fetches, any API, any version."""
