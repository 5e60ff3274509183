import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a number of records of one topic by assignment and prints how long that took, as JSON.
 * ConsumerPerformance joins a group; this asks a broker for nothing but its records.
 */
public final class AssignConsumer {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long SILENCE_NS_MAX = 30_000_000_000L;

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("fetch.max.bytes", String.valueOf(50 << 20));
        settings.put("max.partition.fetch.bytes", String.valueOf(1 << 20));
        settings.put("max.poll.records", "5000");
        String topic = arguments[1];
        long wanted = Long.parseLong(arguments[2]);
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> parts = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(p -> parts.add(new TopicPartition(topic, p.partition())));
            consumer.assign(parts);
            consumer.seekToBeginning(parts);
            parts.forEach(consumer::position); // offsets are looked up before the clock starts
            long bytes = 0;
            long records = 0;
            long began = System.nanoTime();
            long heard = began;
            while (records < wanted) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(POLL);
                for (ConsumerRecord<byte[], byte[]> record : polled) {
                    bytes += record.serializedValueSize();
                }
                records += polled.count();
                long now = System.nanoTime();
                heard = polled.isEmpty() ? heard : now;
                if (now - heard > SILENCE_NS_MAX) {
                    throw new IllegalStateException("only " + records + " of " + wanted + " records came");
                }
            }
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.printf("{\"records\":%d,\"bytes\":%d,\"seconds\":%.6f}%n", records, bytes, seconds);
        }
    }
}
