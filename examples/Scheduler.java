import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;

/** Runs jobs when they are due, in the order of their due times, and retries the failed ones. */
public final class Scheduler {

    /** Something to do; it may fail. */
    @FunctionalInterface
    public interface Job {
        void run() throws Exception;
    }

    private record Entry(String name, Job job, Instant due, int attempt) {}

    private final PriorityQueue<Entry> queue =
            new PriorityQueue<>((a, b) -> a.due().compareTo(b.due()));
    private final Map<String, Integer> failures = new HashMap<>();
    private final int maxAttempts;

    public Scheduler(int maxAttempts) {
        if (maxAttempts < 1) {
            throw new IllegalArgumentException("maxAttempts must be at least 1");
        }
        this.maxAttempts = maxAttempts;
    }

    public void submit(String name, Job job, Instant due) {
        queue.add(new Entry(name, job, due, 1));
    }

    /**
     * Runs everything that is due at {@code now}.
     *
     * @return the names of the jobs that ended well, in the order in which they ran
     */
    public List<String> runDue(Instant now) {
        List<String> done = new ArrayList<>();
        while (!queue.isEmpty() && !queue.peek().due().isAfter(now)) {
            Entry e = queue.poll();
            try {
                e.job().run();
                failures.remove(e.name());
                done.add(e.name());
            } catch (Exception problem) {
                failures.merge(e.name(), 1, Integer::sum);
                if (e.attempt() < maxAttempts) {
                    Instant again = now.plus(delayAfter(e.attempt()));
                    queue.add(new Entry(e.name(), e.job(), again, e.attempt() + 1));
                }
            }
        }
        return done;
    }

    /** How long to wait before the next attempt: 2, 4, 8 ... seconds, at most five minutes. */
    static Duration delayAfter(int attempt) {
        long seconds = 1L << Math.min(attempt, 30);
        return Duration.ofSeconds(Math.min(seconds, 300));
    }

    public boolean cancel(String name) {
        failures.remove(name);
        return queue.removeIf(entry -> entry.name().equals(name));
    }

    public int failuresOf(String name) {
        return failures.getOrDefault(name, 0);
    }

    public int waiting() {
        return queue.size();
    }
}
