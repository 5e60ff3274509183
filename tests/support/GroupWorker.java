// Consumers of one group in one process, for test_groups_kill9.py; what they do, as JSON lines.
// The arguments and lines are those of group_worker.py.

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class GroupWorker {
    public static void main(String[] args) throws Exception {
        AtomicBoolean ending = new AtomicBoolean();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(args[5]); number++) {
            String name = args[4] + "-" + number;
            Thread thread = new Thread(() -> work(args, name, ending));
            thread.start();
            threads.add(thread);
        }
        while (System.in.read() >= 0) {
        }
        ending.set(true);
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static void work(String[] args, String name, AtomicBoolean ending) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[1]);
        settings.put("client.id", name);
        settings.put("group.protocol", args[3]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("reconnect.backoff.max.ms", "500");
        settings.put("default.api.timeout.ms", "5000");
        if (args[3].equals("classic")) {
            settings.put("session.timeout.ms", "45000");
            settings.put("heartbeat.interval.ms", "1000");
            settings.put(
                "partition.assignment.strategy",
                "org.apache.kafka.clients.consumer.RangeAssignor");
        }
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            consumer.subscribe(List.of(args[2]));
            while (!ending.get()) {
                turn(consumer, name);
            }
        }
    }

    private static void turn(KafkaConsumer<byte[], byte[]> consumer, String name) {
        String head = "{\"name\": \"" + name + "\", \"kind\": ";
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
        Map<TopicPartition, OffsetAndMetadata> offsets = new java.util.HashMap<>();
        for (TopicPartition place : records.partitions()) {
            List<ConsumerRecord<byte[], byte[]>> batch = records.records(place);
            long last = batch.get(batch.size() - 1).offset();
            say(head + "\"batch\", \"partition\": " + place.partition() + ", \"first\": "
                + batch.get(0).offset() + ", \"last\": " + last + "}");
            offsets.put(place, new OffsetAndMetadata(last + 1));
        }
        if (offsets.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(offsets);
        } catch (KafkaException error) {
            say(head + "\"error\", \"error\": \"" + error.getClass().getSimpleName() + "\"}");
            return;
        }
        String pairs = offsets.entrySet().stream()
            .map(one -> "\"" + one.getKey().partition() + "\": " + one.getValue().offset())
            .collect(Collectors.joining(", "));
        say(head + "\"commit\", \"offsets\": {" + pairs + "}}");
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
