import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** Apache Kafka's own Java client as a client of the suite; compat/scenario.py says what it does. */
public final class CompatDriver {
    private static final long STEP_MS_MAX = 20_000;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String bootstrap;
    private final String topic;
    private final Admin admin;

    private CompatDriver(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.admin = Admin.create(settings());
    }

    public static void main(String[] arguments) throws Exception {
        JsonNode scenario = JSON.readTree(System.in);
        CompatDriver driver =
            new CompatDriver(scenario.get("bootstrap").asText(), scenario.get("topic").asText());
        ObjectNode client = JSON.createObjectNode();
        client.put("client", "kafka-clients " + AppInfoParser.getVersion());
        System.out.println(JSON.writeValueAsString(client));
        int delivered = 0;
        for (JsonNode step : scenario.get("steps")) {
            ObjectNode result = JSON.createObjectNode();
            result.put("step", step.get("name").asText());
            try {
                JsonNode value = JSON.valueToTree(driver.perform(step, delivered));
                result.set("value", value);
                if (step.get("op").asText().equals("produce")) {
                    delivered += value.asInt();
                }
            } catch (UnsupportedOperationException reason) {
                result.put("skipped", reason.getMessage());
            } catch (Exception error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                result.put("error", cause.toString());
            }
            System.out.println(JSON.writeValueAsString(result));
        }
        driver.admin.close(Duration.ofSeconds(5));
    }

    private Object perform(JsonNode step, int delivered) throws Exception {
        switch (step.get("op").asText()) {
            case "create_topic": return createTopic(step);
            case "describe_topic": return partitionsKnown();
            case "produce": return produce(step);
            case "consume": return consume(step, delivered);
            case "group_consume": return groupConsume(step, delivered);
            case "list_offsets": return listOffsets(step);
            case "seek_by_time": return seekByTime(step);
            case "alter_configs": return alterConfigs(step);
            case "describe_configs": return describeConfigs(step.get("names"));
            case "add_partitions": return addPartitions(step);
            case "delete_records": return deleteRecords(step);
            case "delete_topic": return deleteTopic();
            default: throw new UnsupportedOperationException("no call for " + step.get("op"));
        }
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("default.api.timeout.ms", "20000");
        settings.put("request.timeout.ms", "15000");
        return settings;
    }

    private static boolean until(Callable<Boolean> condition) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(STEP_MS_MAX);
        while (!condition.call()) {
            if (System.nanoTime() > deadline) {
                return false;
            }
            Thread.sleep(50);
        }
        return true;
    }

    private int partitionsKnown() throws Exception {
        try {
            return (int) admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic)
                .partitions().stream().filter(part -> part.leader() != null).count();
        } catch (ExecutionException error) {
            if (error.getCause() instanceof UnknownTopicOrPartitionException) {
                return 0;
            }
            throw error;
        }
    }

    private boolean createTopic(JsonNode step) throws Exception {
        int partitions = step.get("partitions").asInt();
        Map<String, String> configs = new HashMap<>();
        step.get("configs").fields().forEachRemaining(e -> configs.put(e.getKey(), e.getValue().asText()));
        NewTopic wanted = new NewTopic(topic, partitions, (short) 1).configs(configs);
        admin.createTopics(List.of(wanted)).all().get();
        return until(() -> partitionsKnown() == partitions);
    }

    private int produce(JsonNode step) throws Exception {
        Properties settings = settings();
        settings.put("acks", step.get("acks").asText());
        settings.put("compression.type", step.get("codec").asText());
        settings.put("enable.idempotence", step.get("idempotent").asText());
        settings.put("linger.ms", "20");
        settings.put("delivery.timeout.ms", "18000");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer =
                 new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (JsonNode record : step.get("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : record.get("headers")) {
                    byte[] value = header.get(1).asText().getBytes(StandardCharsets.UTF_8);
                    headers.add(new RecordHeader(header.get(0).asText(), value));
                }
                sent.add(producer.send(new ProducerRecord<>(
                    topic, record.get("partition").asInt(), record.get("timestamp").asLong(),
                    textOrNull(record.get("key")), textOrNull(record.get("value")), headers)));
            }
            producer.flush();
            for (Future<RecordMetadata> one : sent) {
                one.get(STEP_MS_MAX, TimeUnit.MILLISECONDS);
            }
        }
        return sent.size();
    }

    private static String textOrNull(JsonNode node) {
        return node.isNull() ? null : node.asText();
    }

    private KafkaConsumer<String, String> consumer(String group) {
        Properties settings = settings();
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        if (group != null) {
            settings.put("group.id", group);
        }
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private List<TopicPartition> parts(JsonNode step) {
        List<TopicPartition> parts = new ArrayList<>();
        for (int p = 0; p < step.get("partitions").asInt(); p++) {
            parts.add(new TopicPartition(topic, p));
        }
        return parts;
    }

    private ArrayNode read(KafkaConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(STEP_MS_MAX);
        while (records.size() < count && System.nanoTime() < deadline) {
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
        }
        records.sort(Comparator.<ConsumerRecord<String, String>>comparingInt(ConsumerRecord::partition)
            .thenComparingLong(ConsumerRecord::offset));
        ArrayNode out = JSON.createArrayNode();
        for (ConsumerRecord<String, String> record : records) {
            ObjectNode one = out.addObject();
            one.put("partition", record.partition());
            one.put("offset", record.offset());
            one.put("timestamp", record.timestamp());
            one.put("key", record.key());
            one.put("value", record.value());
            ArrayNode headers = one.putArray("headers");
            for (Header header : record.headers()) {
                headers.addArray().add(header.key())
                    .add(new String(header.value(), StandardCharsets.UTF_8));
            }
        }
        return out;
    }

    private ArrayNode consume(JsonNode step, int delivered) {
        try (KafkaConsumer<String, String> consumer = consumer(null)) {
            consumer.assign(parts(step));
            consumer.seekToBeginning(parts(step));
            return read(consumer, delivered);
        }
    }

    private ArrayNode groupConsume(JsonNode step, int delivered) {
        try (KafkaConsumer<String, String> consumer = consumer(step.get("group").asText())) {
            consumer.subscribe(List.of(topic));
            ArrayNode records = read(consumer, delivered);
            consumer.commitSync();
            Map<TopicPartition, OffsetAndMetadata> offsets = consumer.committed(Set.copyOf(parts(step)));
            long committed = offsets.values().stream().mapToLong(OffsetAndMetadata::offset).sum();
            if (committed != delivered) {
                throw new IllegalStateException("committed " + committed + " of " + delivered);
            }
            return records;
        }
    }

    private Map<String, List<Long>> listOffsets(JsonNode step) {
        try (KafkaConsumer<String, String> consumer = consumer(null)) {
            Map<TopicPartition, Long> first = consumer.beginningOffsets(parts(step));
            Map<TopicPartition, Long> end = consumer.endOffsets(parts(step));
            Map<String, List<Long>> found = new HashMap<>();
            first.forEach((part, offset) ->
                found.put(String.valueOf(part.partition()), List.of(offset, end.get(part))));
            return found;
        }
    }

    private Map<String, Long> seekByTime(JsonNode step) {
        Map<TopicPartition, Long> times = new HashMap<>();
        parts(step).forEach(part -> times.put(part, step.get("timestamp").asLong()));
        Map<String, Long> found = new HashMap<>();
        try (KafkaConsumer<String, String> consumer = consumer(null)) {
            Map<TopicPartition, OffsetAndTimestamp> offsets = consumer.offsetsForTimes(times);
            for (TopicPartition part : parts(step)) {
                consumer.assign(List.of(part));
                consumer.seek(part, offsets.get(part).offset());
                long offset = read(consumer, 1).get(0).get("offset").asLong();
                found.put(String.valueOf(part.partition()), offset);
            }
        }
        return found;
    }

    private boolean alterConfigs(JsonNode step) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        List<AlterConfigOp> changes = new ArrayList<>();
        ArrayNode names = JSON.createArrayNode();
        step.get("configs").fields().forEachRemaining(e -> {
            names.add(e.getKey());
            changes.add(new AlterConfigOp(
                new ConfigEntry(e.getKey(), e.getValue().asText()), AlterConfigOp.OpType.SET));
        });
        Map<ConfigResource, Collection<AlterConfigOp>> wanted = Map.of(resource, changes);
        admin.incrementalAlterConfigs(wanted).all().get();
        return until(() -> JSON.valueToTree(describeConfigs(names)).equals(step.get("configs")));
    }

    private Map<String, String> describeConfigs(JsonNode names) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        Map<String, String> found = new HashMap<>();
        names.forEach(name -> found.put(name.asText(), config.get(name.asText()).value()));
        return found;
    }

    private int addPartitions(JsonNode step) throws Exception {
        int count = step.get("count").asInt();
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(count))).all().get();
        until(() -> partitionsKnown() == count);
        return partitionsKnown();
    }

    private long deleteRecords(JsonNode step) throws Exception {
        TopicPartition part = new TopicPartition(topic, step.get("partition").asInt());
        RecordsToDelete before = RecordsToDelete.beforeOffset(step.get("offset").asLong());
        return admin.deleteRecords(Map.of(part, before)).lowWatermarks().get(part).get().lowWatermark();
    }

    private boolean deleteTopic() throws Exception {
        admin.deleteTopics(List.of(topic)).all().get();
        return !until(() -> !admin.listTopics().names().get().contains(topic));
    }
}
