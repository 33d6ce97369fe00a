// Prints record batches as kafka-clients 4.4 makes them, one "name hex" line each:
//   java -cp 'kafka-clients-4.4.0.jar:slf4j-api.jar:lz4-java.jar:snappy-java.jar:zstd-jni.jar' \
//     BatchVectors.java > crates/wire/tests/batch/golden/kafka-clients-4.4.txt
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;

public class BatchVectors {
    static final long TIME = 1_700_000_000_000L;

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static void print(String name, MemoryRecords records) {
        ByteBuffer buffer = records.buffer().duplicate();
        byte[] all = new byte[buffer.remaining()];
        buffer.get(all);
        System.out.println(name + " " + HexFormat.of().formatHex(all));
    }

    public static void main(String[] args) {
        Header[] headers = {
            new RecordHeader("h", bytes("1")),
            new RecordHeader("h", null),
            new RecordHeader("", bytes(""))
        };
        SimpleRecord[] records = {
            new SimpleRecord(TIME, bytes("key"), bytes("value"), headers),
            new SimpleRecord(TIME + 5, null, bytes("no key")),
            new SimpleRecord(TIME - 5, bytes("tombstone"), null),
            new SimpleRecord(TIME + 1, bytes(""), bytes("")),
            new SimpleRecord(TIME, bytes("long"), bytes("abcdefgh".repeat(9000))),
        };
        Object[][] codecs = {
            {"gzip", Compression.gzip().build()}, {"snappy", Compression.snappy().build()},
            {"lz4", Compression.lz4().build()}, {"zstd", Compression.zstd().build()},
        };
        SimpleRecord[] few = {records[0], records[1], records[2], records[3]};
        print("none", MemoryRecords.withRecords(RecordBatch.MAGIC_VALUE_V2, 0L, Compression.NONE,
            TimestampType.CREATE_TIME, 4711L, (short) 3, 40, 9, false, few));
        for (Object[] codec : codecs) {
            print((String) codec[0], MemoryRecords.withRecords(RecordBatch.MAGIC_VALUE_V2, 0L,
                (Compression) codec[1], TimestampType.CREATE_TIME, -1L, (short) -1, -1, -1, false,
                records));
        }
        print("commit", MemoryRecords.withEndTransactionMarker(TIME, 4711L, (short) 3,
            new EndTransactionMarker(ControlRecordType.COMMIT, 6)));
        print("abort", MemoryRecords.withEndTransactionMarker(TIME, 4711L, (short) 3,
            new EndTransactionMarker(ControlRecordType.ABORT, 6)));
    }
}
