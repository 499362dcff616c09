package wsladder.gateway;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import wsladder.gateway.Protocol.EchoedSettings;

/** The state that all sessions share. */
record Gateway(
    Config config,
    EchoedSettings echo,
    Books books,
    Inference inference,
    Clock clock,
    Set<Session> sessions) {

  private static final long NANOS_PER_MS = 1_000_000;

  /**
   * Frames for which a batch has room from the start, beyond those of one interval, because a tick
   * may be late.
   */
  private static final int SPARE_FRAMES = 8;

  private static final int FRAME_MS = 20;

  static Gateway of(Config config, Books books) {
    return new Gateway(
        config,
        new EchoedSettings(config.cpuPasses(), config.modelDelayMs()),
        books,
        new Inference(config),
        new Clock(),
        ConcurrentHashMap.newKeySet());
  }

  /** Returns the schedule of a session that started at {@code start}, with a random phase. */
  Schedule schedule(long start) {
    long jitter = config.flushPhaseJitterMs() * NANOS_PER_MS;
    long offset = ThreadLocalRandom.current().nextLong(jitter + 1);
    long interval = config.flushIntervalMs() * NANOS_PER_MS;
    return new Schedule(start + offset + interval, interval);
  }

  Inbox inbox() {
    int usualFrames = (int) (config.flushIntervalMs() / FRAME_MS) + SPARE_FRAMES;
    return new Inbox(config.maxBufferedFrames(), Math.min(usualFrames, config.maxBufferedFrames()));
  }
}
