import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** Transactions of Apache Kafka's own Java client; compat/transactions.py says what is asked. */
public final class TransactionDriver {
    private static final long STEP_MS_MAX = 20_000;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String bootstrap;
    private final String topic;

    private TransactionDriver(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        JsonNode scenario = JSON.readTree(System.in);
        TransactionDriver driver =
            new TransactionDriver(scenario.get("bootstrap").asText(), scenario.get("topic").asText());
        ObjectNode client = JSON.createObjectNode();
        client.put("client", "kafka-clients " + AppInfoParser.getVersion());
        System.out.println(client);
        for (JsonNode step : scenario.get("steps")) {
            ObjectNode result = JSON.createObjectNode();
            result.put("step", step.get("name").asText());
            try {
                result.set("value", JSON.valueToTree(driver.perform(step)));
            } catch (Exception error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                result.put("error", cause.toString());
            }
            System.out.println(result);
        }
        System.exit(0);
    }

    private Object perform(JsonNode step) throws Exception {
        switch (step.get("op").asText()) {
            case "commit": return write(step.get("transactional_id").asText(), step.get("records"), true);
            case "abort": return write(step.get("transactional_id").asText(), step.get("records"), false);
            case "read": return read(step.get("committed").asBoolean(), step.get("until"));
            case "transform": return transform(step);
            case "fence": return fence(step);
            case "time_out": return timeOut(step);
            default: throw new IllegalArgumentException(step.toString());
        }
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("default.api.timeout.ms", String.valueOf(STEP_MS_MAX));
        settings.put("request.timeout.ms", "15000");
        return settings;
    }

    private KafkaProducer<String, String> producer(String transactionalId, int timeoutMs) {
        Properties settings = settings();
        settings.put("transactional.id", transactionalId);
        settings.put("transaction.timeout.ms", String.valueOf(timeoutMs));
        settings.put("delivery.timeout.ms", "18000");
        settings.put("max.block.ms", String.valueOf(STEP_MS_MAX));
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private KafkaConsumer<String, String> consumer(String group, boolean committed) {
        Properties settings = settings();
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", committed ? "read_committed" : "read_uncommitted");
        if (group != null) {
            settings.put("group.id", group);
        }
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private int send(KafkaProducer<String, String> producer, JsonNode records) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : records) {
            sent.add(producer.send(
                new ProducerRecord<>(topic, record.get(1).asInt(), null, record.get(0).asText())));
        }
        for (Future<RecordMetadata> one : sent) {
            one.get(STEP_MS_MAX, TimeUnit.MILLISECONDS);
        }
        return sent.size();
    }

    private static ArrayNode only(JsonNode record) {
        return JSON.createArrayNode().add(record);
    }

    private int write(String transactionalId, JsonNode records, boolean commit) throws Exception {
        try (KafkaProducer<String, String> producer = producer(transactionalId, 15_000)) {
            producer.beginTransaction();
            int sent = send(producer, records);
            if (commit) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
            return sent;
        }
    }

    private Map<String, List<String>> read(boolean committed, JsonNode until) {
        Map<String, List<String>> found = new TreeMap<>(Map.of("0", new ArrayList<>(), "1", new ArrayList<>()));
        Set<String> missing = new HashSet<>();
        until.forEach(value -> missing.add(value.asText()));
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(STEP_MS_MAX);
        try (KafkaConsumer<String, String> consumer = consumer(null, committed)) {
            List<TopicPartition> parts = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
            consumer.assign(parts);
            consumer.seekToBeginning(parts);
            while (!missing.isEmpty()) {
                if (System.nanoTime() > deadline) {
                    throw new KafkaException(missing + " did not come after " + found);
                }
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    found.get(String.valueOf(record.partition())).add(record.value());
                    missing.remove(record.value());
                }
            }
        }
        return found;
    }

    private List<String> transform(JsonNode step) throws Exception {
        int count = step.get("count").asInt();
        String source = step.get("source").asText();
        try (KafkaConsumer<String, String> consumer = consumer(step.get("group").asText(), true);
             KafkaProducer<String, String> producer = producer(step.get("transactional_id").asText(), 15_000)) {
            consumer.subscribe(List.of(source));
            List<ConsumerRecord<String, String>> taken = new ArrayList<>();
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(STEP_MS_MAX);
            while (taken.size() < count && System.nanoTime() < deadline) {
                consumer.poll(Duration.ofMillis(100)).forEach(taken::add);
            }
            List<String> values = new ArrayList<>();
            ArrayNode records = JSON.createArrayNode();
            for (ConsumerRecord<String, String> record : taken.subList(0, count)) {
                values.add(record.value());
                records.addArray().add(step.get("prefix").asText() + record.value()).add(0);
            }
            producer.beginTransaction();
            send(producer, records);
            OffsetAndMetadata end = new OffsetAndMetadata(taken.get(count - 1).offset() + 1);
            producer.sendOffsetsToTransaction(Map.of(new TopicPartition(source, 0), end), consumer.groupMetadata());
            if (step.get("commit").asBoolean()) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
            return values;
        }
    }

    private String fence(JsonNode step) throws Exception {
        String id = step.get("transactional_id").asText();
        KafkaProducer<String, String> zombie = producer(id, 15_000);
        zombie.beginTransaction();
        send(zombie, only(step.get("zombie")));
        try (KafkaProducer<String, String> heir = producer(id, 15_000)) {
            heir.beginTransaction();
            send(heir, only(step.get("heir")));
            String told = told(zombie);
            heir.commitTransaction();
            return told;
        } finally {
            zombie.close(Duration.ZERO);
        }
    }

    private String timeOut(JsonNode step) throws Exception {
        KafkaProducer<String, String> late =
            producer(step.get("transactional_id").asText(), step.get("timeout_ms").asInt());
        try {
            late.beginTransaction();
            send(late, only(step.get("late")));
            write(topic + "-after", only(step.get("after")), true);
            read(true, JSON.createArrayNode().add(step.get("after").get(0)));
            return told(late);
        } finally {
            late.close(Duration.ZERO);
        }
    }

    /** The error of a commit that must fail, or nothing. */
    private static String told(KafkaProducer<String, String> producer) {
        try {
            producer.commitTransaction();
        } catch (KafkaException error) {
            return error.toString();
        }
        return "";
    }
}
