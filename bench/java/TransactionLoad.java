import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * One producer that commits transactions of a given number of 100-byte records, one after another.
 * Arguments: bootstrap, topic, records per transaction, seconds to warm up, seconds to measure.
 * Prints the transactions that were committed while it measured, and how long that took.
 */
public final class TransactionLoad {
    private static final int VALUE_BYTES = 100;

    private TransactionLoad() {
    }

    public static void main(String[] arguments) {
        String topic = arguments[1];
        int records = Integer.parseInt(arguments[2]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("transactional.id", topic + "-load");
        byte[] value = "x".repeat(VALUE_BYTES).getBytes(StandardCharsets.US_ASCII);
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            run(producer, topic, records, value, Double.parseDouble(arguments[3]));
            long began = System.nanoTime();
            long committed = run(producer, topic, records, value, Double.parseDouble(arguments[4]));
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.printf(Locale.ROOT, "{\"transactions\": %d, \"seconds\": %.6f}%n", committed, seconds);
        }
    }

    private static long run(
            KafkaProducer<byte[], byte[]> producer, String topic, int records, byte[] value, double seconds) {
        long deadline = System.nanoTime() + (long) (seconds * 1e9);
        long committed = 0;
        while (System.nanoTime() < deadline) {
            producer.beginTransaction();
            for (int i = 0; i < records; i++) {
                producer.send(new ProducerRecord<>(topic, 0, null, value));
            }
            // The client may send EndTxn before a batch that was added just then; a broker must refuse that.
            producer.flush();
            producer.commitTransaction();
            committed++;
        }
        return committed;
    }
}
