import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * Prints messages as Kafka's own classes write them, one a line:
 * {@code request|response KEY VERSION full|empty HEX}. Every field that the version has is set to
 * a value that occurs nowhere else (full), or left at its default (empty).
 */
public final class Vectors {
    /** The newest versions of each API that are printed. */
    private static final int NEWEST = 2;

    private int next = 1;

    public static void main(String[] args) throws Exception {
        for (ApiMessageType api : ApiMessageType.values()) {
            if (api.requestSchemas().length == 0) {
                continue;
            }
            short high = api.highestSupportedVersion(false);
            int low = Math.max(api.lowestSupportedVersion(), high - NEWEST + 1);
            for (int version = low; version <= high; version++) {
                short v = (short) version;
                print("request", api, v, api.requestSchemas()[v], api.newRequest(), api.newRequest());
                print("response", api, v, api.responseSchemas()[v], api.newResponse(),
                    api.newResponse());
            }
        }
    }

    private static void print(String kind, ApiMessageType api, short version, Schema schema,
            Message full, Message empty) throws Exception {
        new Vectors().fill(full, schema);
        line(kind, api, version, "full", full);
        try {
            line(kind, api, version, "empty", empty);
        } catch (RuntimeException e) {
            // A default that the version cannot carry: nothing to print.
        }
    }

    private static void line(String kind, ApiMessageType api, short version, String what, Message m) {
        ByteBuffer buffer = MessageUtil.toByteBufferAccessor(m, version).buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        System.out.println(kind + " " + api.apiKey() + " " + version + " " + what + " "
            + HexFormat.of().formatHex(bytes));
    }

    private void fill(Object target, Schema schema) throws Exception {
        for (BoundField bound : schema.fields()) {
            Field field = bound.def;
            if (field.type instanceof TaggedFields tagged) {
                for (Field tag : tagged.fields().values()) {
                    set(target, tag);
                }
            } else {
                set(target, field);
            }
        }
    }

    private void set(Object target, Field field) throws Exception {
        String name = field.name.replace("_", "");
        for (Method setter : target.getClass().getMethods()) {
            if (setter.getName().equalsIgnoreCase("set" + name)) {
                setter.invoke(target, value(setter, field.type));
                return;
            }
        }
        throw new IllegalStateException(target.getClass() + " has no setter for " + field.name);
    }

    private Object value(Method setter, Type type) throws Exception {
        Class<?> wanted = setter.getParameterTypes()[0];
        if (Collection.class.isAssignableFrom(wanted)) {
            Class<?> item;
            Collection<Object> items;
            if (wanted == List.class) {
                ParameterizedType list = (ParameterizedType) setter.getGenericParameterTypes()[0];
                item = (Class<?>) list.getActualTypeArguments()[0];
                items = new ArrayList<>();
            } else {
                Class<?> base = wanted;
                while (!(base.getGenericSuperclass() instanceof ParameterizedType)) {
                    base = base.getSuperclass();
                }
                item = (Class<?>) ((ParameterizedType) base.getGenericSuperclass())
                    .getActualTypeArguments()[0];
                @SuppressWarnings("unchecked")
                Collection<Object> empty =
                    (Collection<Object>) wanted.getDeclaredConstructor().newInstance();
                items = empty;
            }
            Type element = type.arrayElementType().orElseThrow();
            items.add(one(item, element));
            items.add(one(item, element));
            return items;
        }
        return one(wanted, type);
    }

    private Object one(Class<?> wanted, Type type) throws Exception {
        int n = next++;
        return switch (wanted.getSimpleName()) {
            case "boolean", "Boolean" -> true;
            case "byte", "Byte" -> (byte) n;
            case "short", "Short" -> (short) n;
            case "int", "Integer" -> wanted == int.class && type == Type.UINT16 ? n : n << 8 | n % 7;
            case "long", "Long" -> (long) n << 40 | n;
            case "double", "Double" -> n + 0.5;
            case "String" -> "string-" + n;
            case "Uuid" -> new Uuid(n, n);
            case "byte[]" -> ("bytes-" + n).getBytes();
            case "ByteBuffer" -> ByteBuffer.wrap(("bytes-" + n).getBytes());
            case "BaseRecords", "MemoryRecords" ->
                MemoryRecords.readableRecords(ByteBuffer.wrap(("records-" + n).getBytes()));
            default -> {
                Object nested = wanted.getDeclaredConstructor().newInstance();
                fill(nested, (Schema) type);
                yield nested;
            }
        };
    }
}
