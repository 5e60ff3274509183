import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Apache Kafka's Java client as workers of a history: one JSON line in, one JSON line out.
 * exactly_once/clients.py says what is done and how its end is judged; this does the same.
 */
public final class HistoryClient {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long CALL_MS_MAX = 6_000;
    private static final Duration POLL = Duration.ofMillis(100);
    private static final Duration CLOSE = Duration.ofMillis(500);

    private static String bootstrap;
    private static int partitionsPerTopic;
    private static int topics;

    private KafkaProducer<String, String> plain;
    private KafkaProducer<String, String> pipelined;
    private KafkaProducer<String, String> producer;
    private KafkaConsumer<String, String> consumer;
    private String transactionalId;
    private ArrayNode steps;
    private ArrayNode parts;
    private boolean isMoved;
    private ConsumerGroupMetadata membership;

    /** An end of an operation that is not a success. */
    private static final class Ended extends Exception {
        private final String outcome;
        private final boolean endsProcess;

        private Ended(String outcome, String why, boolean endsProcess) {
            super(why);
            this.outcome = outcome;
            this.endsProcess = endsProcess;
        }
    }

    /** Partitions changed hands in the middle of an operation. */
    private static final class Moved extends RuntimeException {
    }

    private static final class IntendedAbort extends RuntimeException {
        private IntendedAbort() {
            super("intended");
        }
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        partitionsPerTopic = Integer.parseInt(arguments[1]);
        topics = Integer.parseInt(arguments[2]);
        Map<String, HistoryClient> clients = new HashMap<>();
        Map<String, ExecutorService> threads = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode command = JSON.readTree(line);
            String worker = command.get("worker").asText();
            HistoryClient client = clients.computeIfAbsent(worker, name -> new HistoryClient());
            threads.computeIfAbsent(worker, name -> Executors.newSingleThreadExecutor())
                .execute(() -> answer(worker, client, command));
        }
        System.exit(0);
    }

    private static void answer(String worker, HistoryClient client, JsonNode command) {
        ObjectNode answer = JSON.createObjectNode();
        answer.put("worker", worker);
        client.steps = JSON.createArrayNode();
        client.parts = JSON.createArrayNode();
        client.isMoved = false;
        try {
            boolean ends = client.perform(command);
            answer.put("outcome", "ok").put("error", "").put("ends", ends);
        } catch (Ended ended) {
            answer.put("outcome", ended.outcome).put("error", ended.getMessage()).put("ends", ended.endsProcess);
        } catch (Exception error) {
            answer.put("outcome", "info").put("error", name(error)).put("ends", true);
        }
        answer.set("steps", client.steps);
        answer.set("parts", client.parts);
        synchronized (System.out) {
            System.out.println(answer);
            System.out.flush();
        }
    }

    private static String name(Throwable error) {
        String said = String.valueOf(error.getMessage());
        return error.getClass().getSimpleName() + " " + said.substring(0, Math.min(160, said.length()));
    }

    private boolean perform(JsonNode command) throws Exception {
        switch (command.get("do").asText()) {
            case "open": open(command); return false;
            case "close": close(); return false;
            case "assign": assign(command.get("positions")); return false;
            case "subscribe": subscribe(); return false;
            case "rewind": rewind(); return false;
            case "pipeline": pipeline(command.get("steps")); return false;
            case "everything": everything(command.get("positions")); return false;
            case "send":
            case "poll": alone(command); return false;
            case "transaction": return transaction(command);
            default: throw new IllegalArgumentException(command.toString());
        }
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("request.timeout.ms", "1500");
        settings.put("default.api.timeout.ms", String.valueOf(CALL_MS_MAX));
        settings.put("reconnect.backoff.ms", "50");
        settings.put("reconnect.backoff.max.ms", "300");
        return settings;
    }

    private KafkaProducer<String, String> producer(String transactional) {
        return producer(transactional, settings());
    }

    private KafkaProducer<String, String> producer(String transactional, Properties settings) {
        settings.put("enable.idempotence", "true");
        settings.put("delivery.timeout.ms", "3000");
        settings.put("max.block.ms", "2500");
        settings.put("linger.ms", "0");
        if (transactional != null) {
            settings.put("transactional.id", transactional);
            settings.put("transaction.timeout.ms", "4000");
        }
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(String group, boolean isMember) {
        Properties settings = settings();
        settings.put("group.id", group);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", isMember ? "earliest" : "none");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "500");
        settings.put("fetch.max.wait.ms", "50");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private void open(JsonNode command) throws Ended {
        transactionalId = command.get("transactional_id").asText();
        JsonNode positions = command.get("positions");
        consumer = consumer(command.get("group").asText(), positions.isNull());
        plain = producer(null);
        Properties oneByOne = settings();
        oneByOne.put("batch.size", "0");
        pipelined = producer(null, oneByOne);
        producer = producer(transactionalId);
        try {
            producer.initTransactions();
        } catch (RuntimeException error) {
            throw new Ended("fail", name(error), true);
        }
        if (positions.isNull()) {
            subscribe();
        } else {
            assign(positions);
        }
    }

    private void close() {
        if (consumer == null) {
            return;
        }
        producer.close(Duration.ZERO);
        plain.close(Duration.ZERO);
        pipelined.close(Duration.ZERO);
        consumer.close(CLOSE);
        consumer = null;
    }

    private static TopicPartition place(int key) {
        return new TopicPartition("history-" + key / partitionsPerTopic, key % partitionsPerTopic);
    }

    private static int keyOf(TopicPartition part) {
        int topic = Integer.parseInt(part.topic().substring(part.topic().lastIndexOf('-') + 1));
        return topic * partitionsPerTopic + part.partition();
    }

    private void assign(JsonNode positions) {
        Map<TopicPartition, Long> wanted = new HashMap<>();
        positions.fields().forEachRemaining(one ->
            wanted.put(place(Integer.parseInt(one.getKey())), one.getValue().asLong()));
        consumer.assign(wanted.keySet());
        wanted.forEach(consumer::seek);
    }

    private void subscribe() {
        List<String> names = new ArrayList<>();
        for (int topic = 0; topic < topics; topic++) {
            names.add("history-" + topic);
        }
        membership = null;
        consumer.unsubscribe();
        consumer.subscribe(names, new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                // Asked for later, it may be that of nobody, and then nobody is fenced (KIP-447).
                membership = consumer.groupMetadata();
                isMoved = true;
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
                isMoved = true;
            }
        });
    }

    /** Go back to what the group has committed, or to the start. */
    private void rewind() {
        consumer.committed(consumer.assignment()).forEach((part, committed) ->
            consumer.seek(part, committed == null ? 0 : committed.offset()));
    }

    private void everything(JsonNode positions) {
        consumer = consumer("final-reader-java", false);
        assign(positions);
        Map<TopicPartition, Long> ends = consumer.endOffsets(consumer.assignment());
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
            if (System.nanoTime() > deadline) {
                throw new TimeoutException("the end was not reached");
            }
            poll(steps);
        }
        consumer.close(CLOSE);
        consumer = null;
    }

    private void poll(ArrayNode into) {
        ConsumerRecords<String, String> records = consumer.poll(POLL);
        if (isMoved) {
            throw new Moved();
        }
        if (records.isEmpty()) {
            return;
        }
        ObjectNode pairs = into.addArray().add("poll").addObject();
        for (TopicPartition part : records.partitions()) {
            ArrayNode got = pairs.putArray(String.valueOf(keyOf(part)));
            for (ConsumerRecord<String, String> record : records.records(part)) {
                got.addArray().add(record.offset()).add(Long.parseLong(record.value()));
            }
        }
    }

    /** Send all without waiting, each in a batch of its own. */
    private void pipeline(JsonNode sends) throws Exception {
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        for (JsonNode step : sends) {
            try {
                futures.add(pipelined.send(record(step)));
            } catch (RuntimeException error) {
                futures.add(CompletableFuture.failedFuture(error));
            }
        }
        for (int index = 0; index < sends.size(); index++) {
            JsonNode step = sends.get(index);
            ObjectNode part = parts.addObject();
            ArrayNode sent = part.putArray("steps").addArray().add("send").add(step.get(1)).add(step.get(2));
            try {
                sent.add(offset(futures.get(index), step));
                part.put("outcome", "ok").put("error", "").put("ends", false);
            } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException error) {
                sent.addNull();
                part.put("outcome", "fail").put("error", name(error)).put("ends", true);
            } catch (InvalidProducerEpochException | UnknownTopicOrPartitionException error) {
                sent.addNull();
                part.put("outcome", "fail").put("error", name(error)).put("ends", false);
            } catch (Exception error) {
                sent.addNull();
                part.put("outcome", "info").put("error", name(error)).put("ends", true);
            }
        }
        for (JsonNode part : parts) {
            if (part.get("ends").asBoolean()) {
                throw new Ended("info", "pipeline", true);
            }
        }
    }

    private static ProducerRecord<String, String> record(JsonNode step) {
        TopicPartition part = place(step.get(1).asInt());
        return new ProducerRecord<>(part.topic(), part.partition(), null, step.get(2).asText());
    }

    private void step(KafkaProducer<String, String> with, JsonNode step) throws Exception {
        if (step.get(0).asText().equals("poll")) {
            poll(steps);
            return;
        }
        ArrayNode sent = steps.addArray().add("send").add(step.get(1)).add(step.get(2)).addNull();
        long offset = send(with, step);
        sent.remove(3);
        sent.add(offset);
    }

    private long send(KafkaProducer<String, String> with, JsonNode step) throws Exception {
        return offset(with.send(record(step)), step);
    }

    private static long offset(Future<RecordMetadata> sent, JsonNode step) throws Exception {
        try {
            return sent.get(CALL_MS_MAX, TimeUnit.MILLISECONDS).offset();
        } catch (ExecutionException error) {
            if (error.getCause() instanceof RuntimeException) {
                throw (RuntimeException) error.getCause();
            }
            throw error;
        } catch (java.util.concurrent.TimeoutException error) {
            throw new TimeoutException("nothing was said of " + step.get(2));
        }
    }

    private void alone(JsonNode command) throws Exception {
        JsonNode step = command.get("steps").get(0);
        boolean isSend = step.get(0).asText().equals("send");
        try {
            step(plain, step);
        } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException error) {
            throw new Ended("fail", name(error), true);
        } catch (InvalidProducerEpochException | UnknownTopicOrPartitionException error) {
            throw new Ended("fail", name(error), false);
        } catch (RuntimeException error) {
            throw new Ended(isSend ? "info" : "fail", name(error), isSend);
        }
    }

    private boolean transaction(JsonNode command) throws Exception {
        boolean isOvertaken = !command.get("rival").isNull();
        try {
            producer.beginTransaction();
        } catch (RuntimeException error) {
            throw new Ended("fail", name(error), true);
        }
        KafkaProducer<String, String> rival = null;
        try {
            int abortBefore = command.get("abort_before").asInt(-1);
            int index = 0;
            for (JsonNode step : command.get("steps")) {
                if (index++ == abortBefore) {
                    throw new IntendedAbort();
                }
                step(producer, step);
            }
            if (abortBefore >= 0) {
                throw new IntendedAbort();
            }
            sendOffsets();
            if (isOvertaken) {
                rival = producer(transactionalId);
                rival.initTransactions();
                rival.beginTransaction();
                send(rival, command.get("rival"));
            }
        } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException error) {
            throw new Ended("fail", name(error), true);
        } catch (RuntimeException error) {
            close(rival);
            abort(error);
        }
        try {
            commit(isOvertaken ? "overtaken, " : "");
        } finally {
            close(rival);
        }
        return isOvertaken;
    }

    /** End another producer of the same id; its transaction is aborted, now or by its timeout. */
    private static void close(KafkaProducer<String, String> rival) {
        if (rival == null) {
            return;
        }
        try {
            rival.abortTransaction();
        } catch (RuntimeException unable) {
            System.err.println(unable);
        } finally {
            rival.close(Duration.ZERO);
        }
    }

    private void sendOffsets() {
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (JsonNode step : steps) {
            if (step.get(0).asText().equals("poll")) {
                step.get(1).fields().forEachRemaining(one -> {
                    JsonNode last = one.getValue().get(one.getValue().size() - 1);
                    ends.put(place(Integer.parseInt(one.getKey())), new OffsetAndMetadata(last.get(0).asLong() + 1));
                });
            }
        }
        if (!ends.isEmpty()) {
            producer.sendOffsetsToTransaction(ends, membership != null ? membership : consumer.groupMetadata());
        }
    }

    /** Its commit was not tried, so it did not happen, even if the abort fails. */
    private void abort(RuntimeException why) throws Ended {
        try {
            producer.abortTransaction();
        } catch (RuntimeException failed) {
            throw new Ended("fail", name(why) + ", abort " + name(failed), true);
        }
        throw new Ended("fail", why instanceof IntendedAbort ? "intended" : name(why), false);
    }

    private void commit(String prefix) throws Ended {
        try {
            producer.commitTransaction();
        } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException error) {
            throw new Ended("fail", prefix + "commit " + name(error), true);
        } catch (TimeoutException | InterruptException error) {
            throw new Ended("info", prefix + "commit " + name(error), true);
        } catch (RuntimeException error) {
            String what = prefix + "commit " + name(error);
            try {
                producer.abortTransaction();
            } catch (RuntimeException failed) {
                boolean isDefinite = error instanceof InvalidTxnStateException;
                throw new Ended(isDefinite ? "fail" : "info", what + ", abort " + name(failed), true);
            }
            throw new Ended("fail", what, false);
        }
    }
}
