// Prints the settings of Kafka 4.4's topics and brokers, tab-separated, from its own definitions:
//   java -cp 'kafka-4.4.0-jars/*' ConfigDefs.java > crates/broker/tests/config/kafka-4.4.txt
// The jars are those of org.apache.kafka:kafka_2.13:4.4.0 and commons-validator.
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

public class ConfigDefs {
    static void print(String kind, ConfigDef definitions) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definitions.configKeys()).values()) {
            boolean none =
                key.defaultValue == ConfigDef.NO_DEFAULT_VALUE || key.defaultValue == null;
            String value = none ? "(none)" : ConfigDef.convertToString(key.defaultValue, key.type);
            System.out.println(kind + "\t" + key.name + "\t" + key.type + "\t" + value);
        }
    }

    public static void main(String[] args) {
        print("topic", LogConfig.configDefCopy());
        print("broker", AbstractKafkaConfig.CONFIG_DEF);
        var all = new TreeMap<>(ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS);
        all.forEach((name, synonyms) -> {
            String names = String.join(",", synonyms.stream().map(ConfigSynonym::name).toList());
            System.out.println("synonym\t" + name + "\t" + names);
        });
    }
}
