package wsladder.gateway;

import io.helidon.common.buffers.BufferData;
import io.helidon.common.buffers.DataReader;
import io.helidon.common.concurrency.limits.Limit;
import io.helidon.http.Headers;
import io.helidon.http.HttpPrologue;
import io.helidon.webserver.CloseConnectionException;
import io.helidon.webserver.ConnectionContext;
import io.helidon.webserver.spi.ServerConnection;
import io.helidon.webserver.websocket.WsConnection;
import io.helidon.websocket.WsSession;
import java.time.Duration;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * One session, from its upgrade to its last byte.
 *
 * <p>Its reader is the virtual thread on which Helidon reads frames. Once the session has started,
 * the reader rests whenever it has understood all that it read, and is woken by the clock at the
 * session's ticks and some times in between. Meanwhile audio waits in the kernel's buffer, and one
 * wake-up takes many frames. Three threads meet here (the reader, the clock, and the one that waits
 * for the inference), so the state is behind a lock. The reader holds it while it understands
 * frames, and never while it waits.
 */
final class Session implements ServerConnection, Clock.Sleeper {
  /** How long the end of a session may take: its close frame, and what the client still sends. */
  private static final long FAREWELL_NANOS = 1_000_000_000L;

  /** How long a session may take to end by itself when the gateway stops, without the farewell. */
  private static final long DRAIN_NANOS = 2_800_000_000L;

  /** What the reader does. */
  private enum Reader {
    /** It understands what it read; it holds the lock. */
    BUSY,
    /** It waits for the clock. */
    RESTING,
    /** The clock woke it, but it does not run yet. */
    WAKING,
    /** It reads the socket, or waits for it. */
    READING
  }

  private final Gateway gateway;
  private final Inlet inlet;
  private final ReentrantLock lock = new ReentrantLock();
  private final Outbox outbox;
  private final Inbox inbox;
  private final Flights flights;
  private final ServerConnection frames;

  private WsSession webSocket;
  private Thread thread;
  private volatile Reader reader = Reader.BUSY;

  /** Present from the start message on. */
  private Schedule schedule;

  /** Present once the session is over. */
  private End end;

  /** When the last read returned, and how much it read that is not in the books yet. */
  private long readAt;

  private int bytesRead;

  /** When the clock is to look after the session. */
  private long wakeAt;

  /** For when an alarm is set. */
  private long alarmAt = Clock.NEVER;

  private boolean draining;

  /** By when everything must be over: the drain, and later the farewell. */
  private long deadline;

  Session(
      Gateway gateway,
      ConnectionContext socket,
      HttpPrologue prologue,
      Headers headers,
      String key) {
    this.gateway = gateway;
    this.inlet = new Inlet(socket);
    this.outbox =
        new Outbox(
            socket.dataWriter(),
            bytes -> gateway.books().enter(counts -> counts.bytesSent += bytes));
    this.inbox = gateway.inbox();
    this.flights = new Flights(gateway, inbox, this::landed);
    PacedContext paced = new PacedContext(socket, DataReader.create(this::read), outbox);
    this.frames = WsConnection.create(paced, prologue, headers, key, new Listener(this));
  }

  /** Runs the session on the calling thread, which becomes its reader. */
  @Override
  public void handle(Limit limit) {
    thread = Thread.currentThread();
    readAt = System.nanoTime();
    gateway.sessions().add(this);
    boolean mayStillSend = false;
    lock.lock();
    try {
      frames.handle(limit);
      // Returns once a close frame was answered: the session is over, and this changes nothing.
      end(End.ERROR);
    } catch (RuntimeException | InterruptedException e) {
      mayStillSend = end(End.of(e)).needsLinger();
    } finally {
      lock.unlock();
    }
    farewell(mayStillSend);
    gateway.sessions().remove(this);
  }

  /**
   * Waits until the client has its close frame. What it sends meanwhile is read and thrown away:
   * left unread it would make the kernel reset the connection, and the close frame might be lost.
   * The clock closes the socket when that takes too long.
   */
  private void farewell(boolean mayStillSend) {
    try {
      outbox.flush();
      outbox.awaitEmpty(deadline);
      if (mayStillSend) {
        inlet.discard();
      }
    } catch (RuntimeException e) {
      // The connection has ended, which is what was waited for.
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  /** Brings more bytes to Helidon, which has understood all that came before. */
  private byte[] read() {
    admit();
    if (schedule != null && end == null) {
      act(System.nanoTime());
      rest();
    }
    setAlarm();
    byte[] bytes = readSocket();
    readAt = System.nanoTime();
    bytesRead = bytes == null ? 0 : bytes.length;
    return bytes;
  }

  private byte[] readSocket() {
    byte[] early = inlet.early();
    if (early.length > 0) {
      return early;
    }
    reader = Reader.READING;
    lock.unlock();
    try {
      return schedule == null ? inlet.readSome() : inlet.readAll();
    } finally {
      lock.lock();
      reader = Reader.BUSY;
    }
  }

  /**
   * Waits for the clock, unless the session is over: then its last frames are read as they come.
   */
  private void rest() {
    if (end != null) {
      return;
    }
    setAlarm();
    reader = Reader.RESTING;
    lock.unlock();
    try {
      while (reader == Reader.RESTING) {
        LockSupport.park(this);
        if (Thread.interrupted()) {
          throw new CloseConnectionException("interrupted");
        }
      }
    } finally {
      lock.lock();
      reader = Reader.BUSY;
    }
  }

  private void setAlarm() {
    if (schedule != null && wakeAt < alarmAt) {
      alarmAt = wakeAt;
      gateway.clock().set(this, wakeAt);
    }
  }

  /** Puts frames that were read into the books; the oldest are dropped if too many wait. */
  private void admit() {
    int arrived = inbox.mark(readAt);
    int excess = inbox.dropExcess();
    int bytes = bytesRead;
    bytesRead = 0;
    if (bytes > 0) {
      gateway.books().enter(counts -> counts.arrive(bytes, arrived, excess));
    }
  }

  /** Runs the tick if one is due, or goes on with the drain. */
  private void act(long now) {
    if (draining) {
      continueDrain();
    } else {
      if (schedule.isDue(now)) {
        flights.tick(schedule.tick(now));
      }
      wakeAt = schedule.wake(now);
    }
  }

  /** The clock looks after the session. */
  @Override
  public long alarm(long set, long now) {
    if (!lock.tryLock()) {
      return set;
    }
    try {
      if (set != alarmAt) {
        return Clock.NEVER;
      }
      alarmAt = look(now);
      return alarmAt;
    } finally {
      lock.unlock();
    }
  }

  private long look(long now) {
    if (end == null && outbox.isStalled(now)) {
      end(End.SLOW_CONSUMER);
    } else if (end == null && draining && now - deadline >= 0) {
      end(End.SHUTDOWN);
    }
    if (end != null) {
      return lookAtEnd(now);
    }
    if (now - wakeAt < 0) {
      return wakeAt;
    }
    if (reader == Reader.RESTING) {
      wake();
    } else if (reader == Reader.READING && thread.getState() == Thread.State.WAITING) {
      // Nothing waits in the socket: what is due is done without the reader.
      act(now);
      return end == null ? wakeAt : deadline;
    }
    // Until the reader has been there.
    return now + Clock.ROUND_NANOS;
  }

  private long lookAtEnd(long now) {
    if (now - deadline < 0) {
      return deadline;
    }
    inlet.close();
    return Clock.NEVER;
  }

  private void wake() {
    reader = Reader.WAKING;
    LockSupport.unpark(thread);
  }

  /** Helidon's WebSocket is open. */
  void opened(WsSession opened) {
    webSocket = opened;
    flights.opened(opened);
    if (!gateway.books().isAccepting()) {
      // It came too late to be drained with the others.
      end(End.SHUTDOWN);
    }
  }

  /** The client said start. */
  void start() {
    schedule = gateway.schedule(readAt);
    wakeAt = schedule.wake(readAt);
    gateway.books().enter(Books.Counts::start);
  }

  /** The client sent a frame of audio. */
  void frame(BufferData audio) {
    if (end == null) {
      inbox.add(audio);
    }
  }

  /** The client asks whether somebody is there. */
  void pong(BufferData payload) {
    if (end == null && !outbox.isStalled(System.nanoTime())) {
      webSocket.pong(payload);
      Thread.startVirtualThread(outbox::flush);
    }
  }

  /** A request has ended; runs on the thread that waited for it. */
  private void landed(Runnable landing) {
    lock.lock();
    try {
      landing.run();
      if (draining && end == null) {
        continueDrain();
      }
    } finally {
      lock.unlock();
    }
    outbox.flush();
  }

  /** The gateway stops: what the client has sent by now still counts, and nothing after it. */
  void drain() {
    lock.lock();
    try {
      if (end != null || draining) {
        return;
      }
      draining = true;
      if (schedule == null) {
        end(End.SHUTDOWN);
        return;
      }
      long now = System.nanoTime();
      deadline = now + DRAIN_NANOS;
      wakeAt = now;
      setAlarm();
    } finally {
      lock.unlock();
    }
  }

  private void continueDrain() {
    wakeAt = deadline;
    if (flights.isIdle()) {
      flights.send(0);
      if (flights.isIdle()) {
        end(End.SHUTDOWN);
      }
    }
  }

  /** The session is over: {@code how}, unless it was over before. Returns how it was. */
  End end(End how) {
    if (end != null) {
      return end;
    }
    admit();
    end = how;
    int waiting = inbox.clear();
    gateway
        .books()
        .enter(
            counts -> {
              flights.abandon(counts);
              counts.close(how, waiting);
            });
    if (how.code() != 0 && webSocket != null) {
      webSocket.close(how.code(), how.text());
      Thread.startVirtualThread(outbox::flush);
    }
    deadline = System.nanoTime() + FAREWELL_NANOS;
    alarmAt = deadline;
    gateway.clock().set(this, deadline);
    if (reader == Reader.RESTING) {
      wake();
    }
    return how;
  }

  /** The client left before it had the answer to its handshake. */
  void gone() {
    lock.lock();
    try {
      end(End.EOF);
    } finally {
      lock.unlock();
    }
  }

  /** Never idle for Helidon: the contract knows no such limit. */
  @Override
  public Duration idleTime() {
    return Duration.ZERO;
  }

  /** Helidon stops. Sessions were drained before. */
  @Override
  public void close(boolean interrupt) {
    drain();
  }
}
