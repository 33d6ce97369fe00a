import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Apache Kafka Java client through an outage; prints what client.py names. BROKER PREFIX */
public class Outage {
    static final int PARTITIONS = 4;
    static final int OLD = 2000;
    static final CountDownLatch STOP = new CountDownLatch(1);

    interface Job { void run() throws Exception; }

    static synchronized void say(String text) {
        System.out.printf("%.3f %s%n", System.currentTimeMillis() / 1e3, text);
    }

    static boolean stopped(long ms) {
        try {
            return STOP.await(ms, TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            return true;
        }
    }

    /** An exception is said, and the client goes on as an application would. */
    static void guarded(String who, Job job) {
        try {
            job.run();
        } catch (Exception e) {
            say("fault " + who + " " + e.getClass().getSimpleName() + " " + e.getMessage());
            stopped(200);
        }
    }

    static KafkaConsumer<String, String> consumer(String broker, Map<String, Object> more) {
        Map<String, Object> conf = new HashMap<>(more);
        conf.put("bootstrap.servers", broker);
        conf.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(conf, new StringDeserializer(), new StringDeserializer());
    }

    static void member(String broker, String who, String topic, String group) {
        var listener = new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> parts) {
                say("revoked " + who + " " + parts.size());
            }

            public void onPartitionsAssigned(Collection<TopicPartition> parts) {
                say("assigned " + who + " " + parts.size());
            }
        };
        String[] last = {""};
        try (var c = consumer(broker, Map.of("group.id", group))) {
            c.subscribe(List.of(topic), listener);
            while (!stopped(0)) {
                guarded(who, () -> {
                    var text = new StringBuilder();
                    c.poll(Duration.ofMillis(200)).forEach(r -> text.append(' ').append(r.value()));
                    if (!text.isEmpty()) say("got " + who + text);
                    var now = c.groupMetadata().memberId() + " " + c.groupMetadata().generationId();
                    if (!now.equals(last[0])) say("member " + who + " " + now);
                    last[0] = now;
                });
            }
        }
    }

    static void reader(String broker, String topic) {
        var parts = IntStream.range(0, PARTITIONS)
            .mapToObj(p -> new TopicPartition(topic, p)).toList();
        int[] left = {0};
        int[] unsaid = {0};
        long[] said = {0};
        try (var c = consumer(broker, Map.of("enable.auto.commit", false))) {
            c.assign(parts);
            while (!stopped(0)) {
                guarded("reader", () -> {
                    if (left[0] <= 0) {
                        stopped(300);
                        parts.forEach(part -> c.seek(part, 0));
                        left[0] = OLD;
                    }
                    int n = c.poll(Duration.ofMillis(200)).count();
                    left[0] -= n;
                    unsaid[0] += n;
                    if (unsaid[0] > 0 && System.currentTimeMillis() - said[0] > 500) {
                        say("read " + unsaid[0]);
                        unsaid[0] = 0;
                        said[0] = System.currentTimeMillis();
                    }
                });
            }
        }
    }

    static KafkaProducer<String, String> producer(String broker, Map<String, Object> more) {
        Map<String, Object> conf = new HashMap<>(more);
        conf.put("bootstrap.servers", broker);
        return new KafkaProducer<>(conf, new StringSerializer(), new StringSerializer());
    }

    static void send(KafkaProducer<String, String> p, String topic, String value,
            Consumer<Exception> done) {
        p.send(new ProducerRecord<>(topic, value), (meta, e) -> {
            say(e == null ? "acked " + value
                : "failed " + value + " " + e.getClass().getSimpleName());
            done.accept(e);
        });
    }

    static void patient(String broker, String topic) {
        try (var p = producer(broker, Map.of())) {
            for (int i = 0; !stopped(50); i++) {
                String value = "p-" + i;
                guarded("patient", () -> send(p, topic, value, e -> { }));
            }
        }
    }

    static void hasty(String broker, String topic) {
        var conf = Map.<String, Object>of("request.timeout.ms", 4000, "delivery.timeout.ms", 5000);
        try (var p = producer(broker, conf)) {
            for (int i = 0; !stopped(500); i++) {
                String value = "h-" + i;
                long start = System.nanoTime();
                var told = new CountDownLatch(1);
                guarded("hasty", () -> {
                    send(p, topic, value, e -> {
                        say(String.format("told %.2f %s", (System.nanoTime() - start) / 1e9,
                            e == null ? "ok" : e.getClass().getSimpleName()));
                        told.countDown();
                    });
                    while (!told.await(50, TimeUnit.MILLISECONDS) && !stopped(0)) { }
                });
            }
        }
    }

    public static void main(String[] args) throws Exception {
        String broker = args[0];
        String topic = args[1] + "-java";
        var threads = List.of(
            new Thread(() -> member(broker, "one", topic + "-p", topic)),
            new Thread(() -> member(broker, "two", topic + "-p", topic)),
            new Thread(() -> reader(broker, args[1] + "-old")),
            new Thread(() -> patient(broker, topic + "-p")),
            new Thread(() -> hasty(broker, topic + "-h")));
        threads.forEach(Thread::start);
        System.in.readAllBytes();
        STOP.countDown();
        for (Thread t : threads) t.join(70_000);
        say("end");
        System.exit(0);
    }
}
