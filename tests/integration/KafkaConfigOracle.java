import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Answers, line by line, what Apache Kafka makes of a key, a value, a broker or a properties text. */
public class KafkaConfigOracle {
    private static final Map<String, ConfigDef> DEFINITIONS = Map.of(
        "broker", AbstractKafkaConfig.CONFIG_DEF,
        "topic", LogConfig.configDefCopy(),
        "group", GroupConfig.CONFIG_DEF,
        "client-metrics", ClientMetricsConfigs.configDef());

    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        String question;
        while ((question = questions.readLine()) != null) {
            String[] words = question.split(" ", -1);
            try {
                System.out.println("answer OK" + answer(words));
            } catch (Throwable refusal) {
                System.out.println("answer REFUSED");
            }
        }
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "keys":
                StringBuilder keys = new StringBuilder();
                for (ConfigDef.ConfigKey key : DEFINITIONS.get(words[1]).configKeys().values()) {
                    String value = !key.hasDefault() ? "required"
                        : key.defaultValue == null ? "none"
                        : encoded(ConfigDef.convertToString(key.defaultValue, key.type));
                    String mode = DynamicBrokerConfig.dynamicConfigUpdateModes()
                        .getOrDefault(key.name, "read-only");
                    keys.append(" ").append(String.join("|", key.name, key.type.name(), value,
                        key.importance.name(), Boolean.toString(key.internalConfig), mode));
                }
                return keys.toString();
            case "value":
                ConfigDef.ConfigKey key = DEFINITIONS.get(words[1]).configKeys().get(words[2]);
                ConfigDef alone = new ConfigDef().define(key.name, key.type,
                    ConfigDef.NO_DEFAULT_VALUE, key.validator, key.importance, "");
                Object value = alone.parse(Map.of(key.name, decoded(words[3]))).get(key.name);
                return " " + encoded(value instanceof Password ? ((Password) value).value()
                    : ConfigDef.convertToString(value, key.type));
            case "broker":
                kafka.server.KafkaConfig.fromProps(properties(words[1]), false);
                return "";
            default:
                StringBuilder pairs = new StringBuilder();
                Map<Object, Object> sorted = new TreeMap<>(properties(words[1]));
                sorted.forEach((name, text) -> pairs.append(" ")
                    .append(encoded((String) name)).append(":").append(encoded((String) text)));
                return pairs.toString();
        }
    }

    private static Properties properties(String word) throws Exception {
        Properties properties = new Properties();
        properties.load(new StringReader(decoded(word)));
        return properties;
    }

    private static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String decoded(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }
}
