import com.fasterxml.jackson.databind.ObjectMapper;
import io.trino.testing.LocalQueryRunner;
import io.trino.testing.MaterializedRow;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import static io.trino.testing.TestingSession.testSessionBuilder;

/** Answers queries, one per line as a JSON text, by rows as JSON; an error is an object with its message. */
public class TrinoWorker {
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        ObjectMapper json = new ObjectMapper();
        LocalQueryRunner runner = LocalQueryRunner.create(testSessionBuilder().build());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Object answer;
            try {
                answer = runner.execute(json.readValue(line, String.class)).getMaterializedRows().stream().map(MaterializedRow::getFields).toList();
            } catch (RuntimeException error) {
                answer = Map.of("error", String.valueOf(error.getMessage()));
            }
            out.println(json.writeValueAsString(answer));
            out.flush();
        }
        System.exit(0);
    }
}
