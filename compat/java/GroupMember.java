import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Apache Kafka's own consumer as a member of a group; compat/groups.py says what is asked. */
public final class GroupMember {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static volatile boolean isOver = false;
    private static final TreeSet<Integer> assigned = new TreeSet<>();

    private GroupMember() {}

    public static void main(String[] arguments) throws IOException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        loadClasses();
        JsonNode asked = JSON.readTree(input.readLine());
        Thread listener = new Thread(() -> {
            try {
                input.readLine();
            } catch (IOException end) {
                // Nobody is there any more, which ends it as well.
            }
            isOver = true;
        });
        listener.setDaemon(true);
        listener.start();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings(asked))) {
            consumer.subscribe(List.of(asked.get("topic").asText()), new Reporter());
            while (!isOver) {
                List<int[]> read = new ArrayList<>();
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(100))) {
                    read.add(new int[] {one.partition(), (int) one.offset()});
                }
                if (!read.isEmpty()) {
                    consumer.commitSync();
                    say("records", read);
                }
            }
        }
        say("stopped", true);
    }

    /** Most of the time that a consumer takes to start, spent before it is asked to. */
    private static void loadClasses() throws IOException {
        String nobody = "{\"bootstrap\": \"127.0.0.1:1\", \"group\": \"none\", \"instance\": null, "
            + "\"protocol\": \"consumer\"}";
        new KafkaConsumer<byte[], byte[]>(settings(JSON.readTree(nobody))).close(
            CloseOptions.timeout(Duration.ZERO));
    }

    private static Properties settings(JsonNode asked) {
        Properties found = new Properties();
        found.put("bootstrap.servers", asked.get("bootstrap").asText());
        found.put("group.id", asked.get("group").asText());
        found.put("enable.auto.commit", "false");
        found.put("auto.offset.reset", "earliest");
        found.put("key.deserializer", ByteArrayDeserializer.class.getName());
        found.put("value.deserializer", ByteArrayDeserializer.class.getName());
        if (!asked.get("instance").isNull()) {
            found.put("group.instance.id", asked.get("instance").asText());
        }
        String protocol = asked.get("protocol").asText();
        if (protocol.equals("consumer")) {
            found.put("group.protocol", "consumer");
        } else {
            found.put("session.timeout.ms", asked.get("session_ms").asText());
            found.put("heartbeat.interval.ms", "500");
            found.put("partition.assignment.strategy", protocol.equals("eager")
                ? RangeAssignor.class.getName() : CooperativeStickyAssignor.class.getName());
        }
        return found;
    }

    private static synchronized void say(String what, Object value) {
        try {
            System.out.println(JSON.writeValueAsString(Map.of(what, value)));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private static final class Reporter implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            partitions.forEach(one -> assigned.add(one.partition()));
            say("assigned", assigned);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            partitions.forEach(one -> assigned.remove(one.partition()));
            if (!partitions.isEmpty()) {
                say("assigned", assigned);
            }
        }
    }
}
