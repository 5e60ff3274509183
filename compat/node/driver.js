"use strict";
// kafkajs as a client of the suite; compat/scenario.py says what it does. It consumes through
// groups only, so `consume` is left out and `group_consume` is where its records are compared.

const path = require("node:path");

// The packages lie in a cache folder beside the project's other downloads, not beside this file.
const packages = process.env.OTTLA_NODE_MODULES;
const load = (name) => require(path.join(packages, name));
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = load("kafkajs");
CompressionCodecs[CompressionTypes.Snappy] = load("kafkajs-snappy");
const lz4 = load("lz4js");
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async (data) => Buffer.from(lz4.decompress(data)),
});
const zstd = load("@bokuweb/zstd-wasm");
const zstdReady = zstd.init();
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => zstdReady.then(() => Buffer.from(zstd.compress(encoder.buffer))),
  decompress: async (data) => zstdReady.then(() => Buffer.from(zstd.decompress(data))),
});

const STEP_MS_MAX = 20_000;
const CODECS = {
  none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD,
};
const ACKS = { 0: 0, 1: 1, all: -1 };

class NotOffered extends Error {}

const text = (data) => (data === null || data === undefined ? null : data.toString());

async function until(condition) {
  const deadline = Date.now() + STEP_MS_MAX;
  while (!(await condition())) {
    if (Date.now() > deadline) return false;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return true;
}

class Driver {
  constructor(bootstrap, topic) {
    this.topic = topic;
    this.kafka = new Kafka({
      clientId: "compat", brokers: [bootstrap], logLevel: logLevel.NOTHING,
      requestTimeout: 15_000, retry: { retries: 8 },
    });
    this.admin = this.kafka.admin();
    this.delivered = 0;
  }

  async partitionsKnown() {
    const { topics } = await this.admin.fetchTopicMetadata({ topics: [this.topic] });
    return topics[0].partitions.filter((part) => part.leader >= 0).length;
  }

  async create_topic(step) {
    const configEntries = Object.entries(step.configs).map(([name, value]) => ({ name, value }));
    const wanted = { topic: this.topic, numPartitions: step.partitions, replicationFactor: 1, configEntries };
    return this.admin.createTopics({ topics: [wanted], waitForLeaders: true });
  }

  async describe_topic() {
    return this.partitionsKnown();
  }

  async produce(step) {
    const producer = this.kafka.producer({ idempotent: step.idempotent, createPartitioner: () => (given) => given.message.partition });
    await producer.connect();
    try {
      const messages = step.records.map((record) => ({
        partition: record.partition, key: record.key, value: record.value,
        headers: Object.fromEntries(record.headers), timestamp: String(record.timestamp),
      }));
      await producer.send({ topic: this.topic, acks: ACKS[step.acks], compression: CODECS[step.codec], messages });
      this.delivered += messages.length;
      return messages.length;
    } finally {
      await producer.disconnect();
    }
  }

  async group_consume(step) {
    const consumer = this.kafka.consumer({ groupId: step.group });
    const records = [];
    await consumer.connect();
    try {
      await consumer.subscribe({ topics: [this.topic], fromBeginning: true });
      await consumer.run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          records.push({
            partition, offset: Number(message.offset), timestamp: Number(message.timestamp),
            key: text(message.key), value: text(message.value),
            headers: Object.entries(message.headers).map(([name, value]) => [name, text(value)]),
          });
        },
      });
      await until(() => records.length >= this.delivered);
      const ends = new Map();
      for (const { partition, offset } of records) ends.set(partition, Math.max(ends.get(partition) ?? 0, offset + 1));
      await consumer.commitOffsets([...ends].map(([partition, end]) => ({ topic: this.topic, partition, offset: String(end) })));
    } finally {
      await consumer.disconnect();
    }
    const [{ partitions }] = await this.admin.fetchOffsets({ groupId: step.group, topics: [this.topic] });
    const committed = partitions.reduce((sum, { offset }) => sum + Math.max(0, Number(offset)), 0);
    if (committed !== this.delivered) throw new Error(`committed ${committed} of ${this.delivered}`);
    return records.sort((a, b) => a.partition - b.partition || a.offset - b.offset);
  }

  async list_offsets(step) {
    const found = {};
    for (const { partition, low, high } of await this.admin.fetchTopicOffsets(this.topic)) {
      if (partition < step.partitions) found[partition] = [Number(low), Number(high)];
    }
    return found;
  }

  async seek_by_time(step) {
    const found = {};
    for (const { partition, offset } of await this.admin.fetchTopicOffsetsByTimestamp(this.topic, step.timestamp)) {
      if (partition < step.partitions) found[partition] = Number(offset);
    }
    return found;
  }

  async alter_configs(step) {
    const configEntries = Object.entries(step.configs).map(([name, value]) => ({ name, value }));
    const resource = { type: ConfigResourceTypes.TOPIC, name: this.topic, configEntries };
    await this.admin.alterConfigs({ resources: [resource] });
    const names = Object.keys(step.configs);
    return until(async () => {
      const now = await this.describe_configs({ names });
      return names.every((name) => now[name] === step.configs[name]);
    });
  }

  async describe_configs(step) {
    const resource = { type: ConfigResourceTypes.TOPIC, name: this.topic, configNames: step.names };
    const { resources } = await this.admin.describeConfigs({ includeSynonyms: false, resources: [resource] });
    return Object.fromEntries(resources[0].configEntries.map((entry) => [entry.configName, entry.configValue]));
  }

  async add_partitions(step) {
    await this.admin.createPartitions({ topicPartitions: [{ topic: this.topic, count: step.count }] });
    await until(async () => (await this.partitionsKnown()) === step.count);
    return this.partitionsKnown();
  }

  async delete_records(step) {
    const partitions = [{ partition: step.partition, offset: String(step.offset) }];
    await this.admin.deleteTopicRecords({ topic: this.topic, partitions });
    const offsets = await this.admin.fetchTopicOffsets(this.topic);
    return Number(offsets.find(({ partition }) => partition === step.partition).low);
  }

  async delete_topic() {
    await this.admin.deleteTopics({ topics: [this.topic] });
    return !(await until(async () => !(await this.admin.listTopics()).includes(this.topic)));
  }
}

async function main() {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  const scenario = JSON.parse(Buffer.concat(chunks).toString());
  const driver = new Driver(scenario.bootstrap, scenario.topic);
  await driver.admin.connect();
  const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
  print({ client: `kafkajs ${load("kafkajs/package.json").version}` });
  for (const step of scenario.steps) {
    if (!(step.op in driver)) {
      print({ step: step.name, skipped: `kafkajs has no call for ${step.op}` });
      continue;
    }
    try {
      print({ step: step.name, value: await driver[step.op](step) });
    } catch (error) {
      if (error instanceof NotOffered) print({ step: step.name, skipped: error.message });
      else print({ step: step.name, error: `${error.name}: ${error.message}` });
    }
  }
  await driver.admin.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(2);
});
