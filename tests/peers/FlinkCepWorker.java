import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import org.apache.flink.api.common.state.KeyedStateStore;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.typeutils.base.array.IntPrimitiveArraySerializer;
import org.apache.flink.cep.configuration.SharedBufferCacheConfig;
import org.apache.flink.cep.nfa.NFA;
import org.apache.flink.cep.nfa.NFAState;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.nfa.compiler.NFACompiler;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBuffer;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBufferAccessor;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.WithinType;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.cep.time.TimerService;

/** Runs patterns in Flink's own NFA, without a cluster. A line is {pattern, within, skip, events}; the answer is a list of matches. */
public class FlinkCepWorker {
    /** An event as numbers: place, kind (a letter), value. */
    static final int ID = 0, KIND = 1, VALUE = 2;

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        ObjectMapper json = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode spec = json.readTree(line);
            Object[] answer = {Map.of("error", "no answer within 5 s")};
            Thread running = new Thread(() -> {
                try {
                    answer[0] = run(spec);
                } catch (Exception error) {
                    answer[0] = Map.of("error", error.getClass().getSimpleName() + ": " + error.getMessage());
                }
            });
            running.setDaemon(true); // a group that may be empty and is repeated never ends in Flink
            running.start();
            running.join(5_000);
            out.println(json.writeValueAsString(answer[0]));
            out.flush();
        }
        System.exit(0); // a buffer of Flink starts a thread for its statistics, which never ends
    }

    static List<Object> run(JsonNode spec) throws Exception {
        AfterMatchSkipStrategy skip = skip(spec.get("skip"));
        Pattern<int[], ?> pattern = sequence(spec.get("pattern"), skip);
        if (spec.has("within")) {
            pattern = pattern.within(Duration.ofMillis(spec.get("within").asLong()));
        }
        NFA<int[]> nfa = NFACompiler.compileFactory(pattern, true).createNFA();
        SharedBuffer<int[]> buffer = new SharedBuffer<>(store(), IntPrimitiveArraySerializer.INSTANCE, new SharedBufferCacheConfig());
        NFAState state = nfa.createInitialNFAState();
        TimerService clock = () -> 0;
        List<Object> found = new ArrayList<>();
        long last = 0;
        for (JsonNode event : spec.get("events")) {
            long time = event.get("t").asLong();
            int[] row = {event.get("id").asInt(), event.get("kind").asText().charAt(0), event.get("value").asInt()};
            try (SharedBufferAccessor<int[]> accessor = buffer.getAccessor()) {
                show(nfa.advanceTime(accessor, state, time, skip).f0, found);
                show(nfa.process(accessor, state, row, time, skip, clock), found);
            }
            last = time;
        }
        try (SharedBufferAccessor<int[]> accessor = buffer.getAccessor()) {
            show(nfa.advanceTime(accessor, state, last + 1_000_000, skip).f0, found);
            // The stream ends: partial matches are given up, and Flink's own rule releases the matches that waited for them.
            state.setNewPartialMatches(new PriorityQueue<>(NFAState.COMPUTATION_STATE_COMPARATOR));
            show(nfa.advanceTime(accessor, state, last + 1_000_000, skip).f0, found);
        }
        return found;
    }

    static void show(Collection<Map<String, List<int[]>>> matches, List<Object> found) {
        for (Map<String, List<int[]>> match : matches) {
            Map<String, List<Integer>> taken = new HashMap<>();
            match.forEach((step, events) -> taken.put(step, events.stream().map(event -> event[ID]).toList()));
            found.add(taken);
        }
    }

    static Pattern<int[], int[]> sequence(JsonNode steps, AfterMatchSkipStrategy skip) {
        Pattern<int[], int[]> made = null;
        for (JsonNode step : steps) {
            made = part(made, step, skip);
        }
        return made;
    }

    static Pattern<int[], int[]> part(Pattern<int[], int[]> before, JsonNode step, AfterMatchSkipStrategy skip) {
        Pattern<int[], int[]> made;
        if (step.has("group")) {
            Pattern<int[], int[]> inner = sequence(step.get("group"), skip);
            made = before == null ? Pattern.begin(inner, skip) : switch (step.get("link").asText()) {
                case "next" -> before.next(inner);
                case "followed_by" -> before.followedBy(inner);
                default -> before.followedByAny(inner);
            };
        } else {
            String name = step.get("step").asText();
            made = before == null ? Pattern.<int[]>begin(name, skip) : switch (step.get("link").asText()) {
                case "next" -> before.next(name);
                case "followed_by" -> before.followedBy(name);
                case "followed_by_any" -> before.followedByAny(name);
                case "not_next" -> before.notNext(name);
                default -> before.notFollowedBy(name);
            };
        }
        return quantified(step.has("where") ? made.where(condition(step.get("where").asText())) : made, step);
    }

    static Pattern<int[], int[]> quantified(Pattern<int[], int[]> made, JsonNode step) {
        Duration between = step.has("loop_gap") ? Duration.ofMillis(step.get("loop_gap").asLong()) : null;
        boolean optional = step.path("optional").asBoolean();
        if (step.has("times")) {
            String[] times = step.get("times").asText().split("\\.\\.", -1);
            int least = Integer.parseInt(times[0]);
            optional |= least == 0;
            int atLeast = Math.max(least, 1);
            if (times.length == 1) {
                made = between == null ? made.times(least) : made.times(least, between);
            } else if (times[1].isEmpty()) {
                made = atLeast == 1 ? (between == null ? made.oneOrMore() : made.oneOrMore(between))
                        : (between == null ? made.timesOrMore(atLeast) : made.timesOrMore(atLeast, between));
            } else {
                int most = Integer.parseInt(times[1]);
                made = between == null ? made.times(atLeast, most) : made.times(atLeast, most, between);
            }
            made = switch (step.path("inner").asText()) {
                case "strict" -> made.consecutive();
                case "any" -> made.allowCombinations();
                default -> made;
            };
        }
        if (optional) {
            made = made.optional();
        }
        if (step.path("greedy").asBoolean()) {
            made = made.greedy();
        }
        if (step.has("until")) {
            made = made.until(condition(step.get("until").asText()));
        }
        return step.has("gap") ? made.within(Duration.ofMillis(step.get("gap").asLong()), WithinType.PREVIOUS_AND_CURRENT) : made;
    }

    static AfterMatchSkipStrategy skip(JsonNode spec) {
        if (spec.isObject()) {
            return spec.has("to_first")
                    ? AfterMatchSkipStrategy.skipToFirst(spec.get("to_first").asText())
                    : AfterMatchSkipStrategy.skipToLast(spec.get("to_last").asText());
        }
        return switch (spec.asText()) {
            case "to_next" -> AfterMatchSkipStrategy.skipToNext();
            case "past_last" -> AfterMatchSkipStrategy.skipPastLastEvent();
            default -> AfterMatchSkipStrategy.noSkip();
        };
    }

    interface Holds extends java.io.Serializable {
        boolean of(int[] event, IterativeCondition.Context<int[]> earlier) throws Exception;
    }

    static IterativeCondition<int[]> condition(String text) {
        Holds holds = switch (text) {
            case "kind == 'a' or kind == 'b'" -> (event, earlier) -> event[KIND] == 'a' || event[KIND] == 'b';
            case "kind != 'c'" -> (event, earlier) -> event[KIND] != 'c';
            case "value > 100" -> (event, earlier) -> event[VALUE] > 100;
            case "value > 2" -> (event, earlier) -> event[VALUE] > 2;
            case "kind == 'b' and value >= first(s0.value)" -> (event, earlier) -> {
                List<int[]> taken = taken(earlier);
                return event[KIND] == 'b' && !taken.isEmpty() && event[VALUE] >= taken.get(0)[VALUE];
            };
            case "value > last(s0.value)" -> (event, earlier) -> {
                List<int[]> taken = taken(earlier);
                return !taken.isEmpty() && event[VALUE] > taken.get(taken.size() - 1)[VALUE];
            };
            case "value + sum(s0.value) < 7 and count(s0) < 3" -> (event, earlier) -> {
                List<int[]> taken = taken(earlier);
                return event[VALUE] + taken.stream().mapToInt(row -> row[VALUE]).sum() < 7 && taken.size() < 3;
            };
            default -> {
                if (!text.matches("kind == '.'")) {
                    throw new IllegalArgumentException("the condition " + text + " is unknown");
                }
                char kind = text.charAt(9);
                yield (event, earlier) -> event[KIND] == kind;
            }
        };
        return new IterativeCondition<>() {
            @Override
            public boolean filter(int[] event, Context<int[]> earlier) throws Exception {
                return holds.of(event, earlier);
            }
        };
    }

    static List<int[]> taken(IterativeCondition.Context<int[]> earlier) throws Exception {
        List<int[]> found = new ArrayList<>();
        earlier.getEventsForPattern("s0").forEach(found::add);
        return found;
    }

    /** State in memory: a map for each name. */
    static KeyedStateStore store() {
        Map<String, Object> made = new HashMap<>();
        return (KeyedStateStore) Proxy.newProxyInstance(FlinkCepWorker.class.getClassLoader(), new Class<?>[] {KeyedStateStore.class}, (self, method, given) -> {
            if (!method.getName().equals("getMapState")) {
                throw new UnsupportedOperationException(method.getName());
            }
            Object descriptor = given[0];
            String name = (String) descriptor.getClass().getMethod("getName").invoke(descriptor);
            return made.computeIfAbsent(name, any -> map());
        });
    }

    static MapState<?, ?> map() {
        Map<Object, Object> values = new HashMap<>();
        return (MapState<?, ?>) Proxy.newProxyInstance(FlinkCepWorker.class.getClassLoader(), new Class<?>[] {MapState.class}, (self, method, given) ->
                switch (method.getName()) {
                    case "get" -> values.get(given[0]);
                    case "put" -> values.put(given[0], given[1]);
                    case "putAll" -> {
                        values.putAll((Map<?, ?>) given[0]);
                        yield null;
                    }
                    case "remove" -> values.remove(given[0]);
                    case "contains" -> values.containsKey(given[0]);
                    case "entries" -> new HashMap<>(values).entrySet();
                    case "keys" -> new ArrayList<>(values.keySet());
                    case "values" -> new ArrayList<>(values.values());
                    case "iterator" -> new HashMap<>(values).entrySet().iterator();
                    case "isEmpty" -> values.isEmpty();
                    default -> {
                        values.clear();
                        yield null;
                    }
                });
    }
}
