import java.io.Closeable;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Apache Kafka Java client through the checks of the matrix. Usage: java Flow BROKER */
public class Flow {
    static final int PARTITIONS = 3;
    static final int PER_PARTITION = 40;
    static final int GROUP_PARTITIONS = 4;
    static final int WAIT_S = 45; // one step of the group checks
    static final String NAME = "java";

    final String broker;
    final String prefix =
        "m-java-" + ProcessHandle.current().pid() + "-" + System.currentTimeMillis();
    boolean failed;
    int serial;
    final String groupTopic = prefix + "-g";

    interface Check { void run() throws Exception; }

    Flow(String broker) { this.broker = broker; }

    static void require(boolean ok, String what) {
        if (!ok) throw new AssertionError(what);
    }

    void check(String name, Check body) {
        long start = System.nanoTime();
        String result = "PASS";
        try {
            body.run();
        } catch (Throwable e) {
            e.printStackTrace();
            result = "FAIL";
            failed = true;
        }
        System.out.printf("%s %s %s %.1f%n", NAME, name, result, (System.nanoTime() - start) / 1e9);
    }

    Map<String, Object> conf(Map<String, Object> more) {
        Map<String, Object> c = new HashMap<>(more);
        c.put("bootstrap.servers", broker);
        return c;
    }

    void create(String topic, int partitions) throws Exception {
        try (Admin admin = Admin.create(conf(Map.of()))) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all()
                .get(30, TimeUnit.SECONDS);
        }
    }

    static List<Header> headers(int i) {
        List<Header> out = new ArrayList<>();
        if (i % 3 == 1) out.add(new RecordHeader("h", "v".getBytes()));
        if (i % 3 == 2) {
            out.add(new RecordHeader("h", "1".getBytes()));
            out.add(new RecordHeader("h", new byte[] {0, -1}));
            out.add(new RecordHeader("empty", new byte[0]));
            out.add(new RecordHeader("none", (byte[]) null));
        }
        return out;
    }

    static List<ProducerRecord<byte[], byte[]>> sample(String topic) {
        List<ProducerRecord<byte[], byte[]>> out = new ArrayList<>();
        for (int i = 0; i < PER_PARTITION; i++)
            for (int p = 0; p < PARTITIONS; p++) {
                String key = i % 5 == 1 ? "" : "key-" + p + "-" + i;
                String value = i % 7 == 1 ? "" : ("value-" + p + "-" + i + " ").repeat(i * i);
                out.add(new ProducerRecord<>(topic, p, i % 5 == 0 ? null : key.getBytes(),
                    i % 7 == 0 ? null : value.getBytes(), headers(i)));
            }
        return out;
    }

    List<RecordMetadata> produce(List<ProducerRecord<byte[], byte[]>> records,
                                 Map<String, Object> mode) throws Exception {
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(conf(mode), bytes, bytes)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (var r : records) sent.add(producer.send(r));
            producer.flush();
            List<RecordMetadata> acks = new ArrayList<>();
            for (var f : sent) acks.add(f.get(30, TimeUnit.SECONDS));
            return acks;
        }
    }

    KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> more) {
        var bytes = new ByteArrayDeserializer();
        return new KafkaConsumer<>(conf(more), bytes, bytes);
    }

    List<ConsumerRecord<byte[], byte[]>> consume(String topic, int partitions) {
        try (var c = consumer(Map.of("enable.auto.commit", "false"))) {
            List<TopicPartition> all = new ArrayList<>();
            for (int p = 0; p < partitions; p++) all.add(new TopicPartition(topic, p));
            c.assign(all);
            c.seekToBeginning(all);
            long due = 0;
            for (long end : c.endOffsets(all).values()) due += end;
            List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
            long limit = System.nanoTime() + WAIT_S * 1_000_000_000L;
            while (got.size() < due) {
                require(System.nanoTime() < limit, "read " + got.size() + " of " + due);
                c.poll(Duration.ofMillis(200)).forEach(got::add);
            }
            return got;
        }
    }

    /** Every record once, in order, at the offset its acknowledgement named, no gap. */
    static void same(List<ProducerRecord<byte[], byte[]>> sent, List<RecordMetadata> acks,
                     List<ConsumerRecord<byte[], byte[]>> got) {
        Map<String, ProducerRecord<byte[], byte[]>> want = new HashMap<>();
        for (int i = 0; i < sent.size(); i++)
            want.put(acks.get(i).partition() + "/" + acks.get(i).offset(), sent.get(i));
        require(want.size() == sent.size(), "two records acknowledged at one offset");
        require(got.size() == sent.size(), "read " + got.size() + " of " + sent.size());
        Map<Integer, Long> next = new HashMap<>();
        for (var g : got) {
            String at = g.partition() + "/" + g.offset();
            require(next.getOrDefault(g.partition(), 0L) == g.offset(), "order at " + at);
            next.put(g.partition(), g.offset() + 1);
            var w = want.get(at);
            require(Arrays.equals(w.key(), g.key()), at + ": key");
            require(Arrays.equals(w.value(), g.value()), at + ": value");
            require(Arrays.equals(w.headers().toArray(), g.headers().toArray()), at + ": headers");
        }
    }

    void round(String suffix, boolean create, Map<String, Object> mode) throws Exception {
        String topic = prefix + "-" + suffix;
        if (create) create(topic, PARTITIONS);
        var records = sample(topic);
        same(records, produce(records, mode), consume(topic, PARTITIONS));
    }

    /** A group member on a thread of its own: reads, commits, keeps what it has seen. */
    class Member implements Closeable {
        final KafkaConsumer<byte[], byte[]> c;
        final Set<String> seen = ConcurrentHashMap.newKeySet();
        volatile Set<TopicPartition> assigned = Set.of();
        volatile boolean stop;
        volatile int read;
        volatile Throwable error;
        final Thread thread = new Thread(this::run);

        Member(Map<String, Object> mode) {
            Map<String, Object> all = new HashMap<>(mode);
            all.putIfAbsent("group.id", prefix + "-group");
            all.put("auto.offset.reset", "earliest");
            c = consumer(all);
            thread.start();
        }

        void run() {
            try (c) {
                c.subscribe(List.of(groupTopic));
                while (!stop) {
                    var records = c.poll(Duration.ofMillis(200));
                    assigned = new HashSet<>(c.assignment());
                    for (var r : records) seen.add(new String(r.value()));
                    read += records.count();
                    try {
                        if (!records.isEmpty()) c.commitSync();
                    } catch (RebalanceInProgressException e) {
                        // the next owner reads it again
                    }
                }
                c.commitSync();
            } catch (WakeupException e) {
                // asked to stop
            } catch (Throwable e) {
                error = e;
            }
        }

        @Override public void close() {
            stop = true;
            try {
                thread.join(WAIT_S * 1000L);
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
            require(!thread.isAlive(), "member does not end");
            if (error != null) throw new AssertionError(error);
        }
    }

    static void until(String what, BooleanSupplier condition, Member... members)
            throws InterruptedException {
        for (long end = System.nanoTime() + WAIT_S * 1_000_000_000L; !condition.getAsBoolean();) {
            StringBuilder state = new StringBuilder(what + ": not within " + WAIT_S + " s:");
            for (Member m : members) {
                if (m.error != null) throw new AssertionError(m.error);
                state.append(" ").append(m.assigned).append(" ").append(m.seen.size());
            }
            require(System.nanoTime() < end, state.toString());
            Thread.sleep(50);
        }
    }

    Set<String> more(int count) throws Exception {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        Set<String> values = new HashSet<>();
        for (int i = 0; i < count; i++) {
            String v = "g-" + serial++;
            values.add(v);
            int p = i % GROUP_PARTITIONS;
            records.add(new ProducerRecord<>(groupTopic, p, (byte[]) null, v.getBytes()));
        }
        produce(records, Map.of());
        return values;
    }

    static boolean share(Member a, Member b) {
        Set<TopicPartition> all = new HashSet<>(a.assigned);
        all.addAll(b.assigned);
        return !a.assigned.isEmpty() && !b.assigned.isEmpty() && all.size() == GROUP_PARTITIONS
            && a.assigned.size() + b.assigned.size() == GROUP_PARTITIONS;
    }

    void group() throws Exception {
        create(groupTopic, GROUP_PARTITIONS);
        Set<String> first = more(200);
        Member a = new Member(Map.of());
        until("the first member reads all", () -> a.seen.containsAll(first), a);
        Member b = new Member(Map.of());
        until("both have partitions", () -> share(a, b), a, b);
        Set<String> second = more(200);
        until("both read the second lot",
            () -> second.stream().allMatch(v -> a.seen.contains(v) || b.seen.contains(v)), a, b);
        for (Member m : List.of(a, b))
            require(second.stream().anyMatch(m.seen::contains), "one member read everything");
        b.close();
        until("the first has all again", () -> a.assigned.size() == GROUP_PARTITIONS, a);
        Set<String> third = more(100);
        until("the first reads the third lot", () -> a.seen.containsAll(third), a);
        a.close();
    }

    void commit() throws Exception {
        try (Admin admin = Admin.create(conf(Map.of()))) {
            var found = admin.listConsumerGroupOffsets(prefix + "-group")
                .partitionsToOffsetAndMetadata().get(30, TimeUnit.SECONDS);
            Map<Integer, Long> got = new TreeMap<>();
            Map<Integer, Long> want = new TreeMap<>();
            found.forEach((tp, o) -> got.put(tp.partition(), o.offset()));
            long end = serial / GROUP_PARTITIONS;
            for (int p = 0; p < GROUP_PARTITIONS; p++) want.put(p, end);
            require(got.equals(want), "committed " + got + ", end offsets " + want);
        }
    }

    void resume() throws Exception {
        Set<String> fresh = more(40);
        Member c = new Member(Map.of());
        until("new records are read", () -> c.seen.containsAll(fresh), c);
        Thread.sleep(500);
        c.close();
        require(c.read == 40, "the new member read " + c.read + " records, not 40");
    }

    /** Static membership with cooperative rebalancing: a restarted member keeps its partitions. */
    void statics() throws Exception {
        Map<String, Object> mode = new HashMap<>(Map.of("group.id", prefix + "-static",
            "group.instance.id", "one", "partition.assignment.strategy",
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"));
        Member a = new Member(mode);
        mode.put("group.instance.id", "two");
        Member b = new Member(mode);
        until("both have partitions", () -> share(a, b), a, b);
        Set<TopicPartition> before = b.assigned;
        b.close();
        Member again = new Member(mode);
        until("both have partitions", () -> share(a, again), a, again);
        require(again.assigned.equals(before), "had " + before + ", now " + again.assigned);
        again.close();
        a.close();
    }

    public static void main(String[] args) throws Exception {
        Flow f = new Flow(args[0]);
        Properties about = new Properties();
        about.load(Admin.class.getResourceAsStream("/kafka/kafka-version.properties"));
        System.out.println("# " + NAME + " " + about.getProperty("version"));
        String topic = f.prefix + "-t";
        var records = sample(topic);
        List<RecordMetadata> acks = new ArrayList<>();
        f.check("create", () -> f.create(topic, PARTITIONS));
        f.check("produce", () -> acks.addAll(f.produce(records, Map.of())));
        f.check("consume", () -> same(records, acks, f.consume(topic, PARTITIONS)));
        f.check("auto", () -> f.round("auto", false, Map.of()));
        for (String codec : List.of("gzip", "snappy", "lz4", "zstd"))
            f.check(codec, () -> f.round(codec, true, Map.of("compression.type", codec)));
        f.check("idempotent", () -> f.round("idem", true, Map.of("enable.idempotence", true)));
        f.check("plain", () -> f.round("plain", true, Map.of("enable.idempotence", false)));
        f.check("group", f::group);
        f.check("commit", f::commit);
        f.check("resume", f::resume);
        f.check("static", f::statics);
        System.out.flush();
        Runtime.getRuntime().halt(f.failed ? 1 : 0); // no client's thread may hold up the end
    }
}
