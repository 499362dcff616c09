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
 * <p>Its reader is the virtual thread on which Helidon parses frames. Once the session has started,
 * the reader rests whenever it has parsed all bytes that it read; the clock wakes it at the
 * session's ticks and a few times in between. Meanwhile audio waits in the kernel's receive buffer,
 * so one wake-up takes many frames. Three threads use the session (the reader, the clock, and the
 * thread that waits for the inference), so a lock guards its state. The reader holds the lock while
 * it parses frames and never while it waits.
 */
final class Session implements ServerConnection, Clock.Sleeper {
  /** Time for the end of a session: to write its Close frame and to discard inbound bytes. */
  private static final long FAREWELL_NANOS = 1_000_000_000L;

  /** Time for a session's last batch when the gateway stops, before the time for its end. */
  private static final long DRAIN_NANOS = 2_800_000_000L;

  /** The state of the reader. */
  private enum Reader {
    /** The reader parses frames or runs a tick. It holds the lock. */
    BUSY,
    /** The reader waits for the clock. */
    RESTING,
    /** The clock has woken the reader, which doesn't run yet. */
    WAKING,
    /** The reader reads the socket or waits for bytes. */
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

  /** {@code null} until the start message. */
  private Schedule schedule;

  /** {@code null} until the session has ended. */
  private End end;

  /** Time at which the last read returned, and the number of its bytes that are not counted yet. */
  private long readAt;

  private int bytesRead;

  /** When the session's next visit, tick or the end of its drain is due. */
  private long wakeAt;

  /** Time of the alarm that is set; {@link Clock#NEVER} without one. */
  private long alarmAt = Clock.NEVER;

  private boolean draining;

  /**
   * The end of the drain, and once the session has ended, the time at which the socket is closed.
   */
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

  /**
   * Runs the session on the calling thread, which becomes its reader. Returns when the Close frame
   * is written and the client has ended the stream, or when the time for that is over.
   */
  @Override
  public void handle(Limit limit) {
    thread = Thread.currentThread();
    readAt = System.nanoTime();
    gateway.sessions().add(this);
    boolean mayStillSend = false;
    lock.lock();
    try {
      frames.handle(limit);
      // Helidon returns after the reply to a Close frame. The session has then already ended, and
      // this call changes nothing.
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
   * Waits until the client has its Close frame. Inbound bytes are read and discarded meanwhile:
   * unread bytes would make the kernel reset the connection, and the Close frame could be lost. The
   * clock closes the socket at {@code deadline}.
   */
  private void farewell(boolean mayStillSend) {
    try {
      outbox.flush();
      outbox.awaitEmpty(deadline);
      if (mayStillSend) {
        inlet.discard();
      }
    } catch (RuntimeException e) {
      // The connection has ended, so there is nothing more to wait for.
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  /**
   * Supplies Helidon with more bytes. Helidon calls this when it has parsed all earlier bytes; the
   * session then counts its frames, runs a due tick and rests before it reads.
   */
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
   * Waits until the clock wakes the reader. Returns at once if the session has ended: the last
   * frames are then read as they arrive.
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

  /** Counts the bytes and frames of the last read, and drops the oldest frames beyond the limit. */
  private void admit() {
    int arrived = inbox.mark(readAt);
    int excess = inbox.dropExcess();
    int bytes = bytesRead;
    bytesRead = 0;
    if (bytes > 0) {
      gateway.books().enter(counts -> counts.arrive(bytes, arrived, excess));
    }
  }

  /** Runs the tick if it is due; during the drain, continues the drain instead. */
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

  /**
   * Checks the session's deadlines and wakes its reader. If the lock is taken, the clock tries
   * again in the next round.
   */
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
      // The socket is empty, so the clock's thread runs the tick without the reader.
      act(now);
      return end == null ? wakeAt : deadline;
    }
    // Checks again each round until the reader has run.
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

  /** Called by the listener when Helidon has opened the WebSocket. */
  void opened(WsSession opened) {
    webSocket = opened;
    flights.opened(opened);
    if (!gateway.books().isAccepting()) {
      // The drain began before this session was registered.
      end(End.SHUTDOWN);
    }
  }

  /** Starts the schedule: the client sent a valid start message. */
  void start() {
    schedule = gateway.schedule(readAt);
    wakeAt = schedule.wake(readAt);
    gateway.books().enter(Books.Counts::start);
  }

  /** Keeps a frame of audio for the next batch. */
  void frame(BufferData audio) {
    if (end == null) {
      inbox.add(audio);
    }
  }

  /** Replies to a ping with the same payload, unless the client doesn't read. */
  void pong(BufferData payload) {
    if (end == null && !outbox.isStalled(System.nanoTime())) {
      webSocket.pong(payload);
      Thread.startVirtualThread(outbox::flush);
    }
  }

  /**
   * Runs {@code landing} under the lock when a request has ended, on the thread that waited for it.
   */
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

  /**
   * Starts the drain because the gateway stops. Audio that the client has sent by now still goes to
   * the inference; later audio is not read.
   */
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

  /**
   * Ends the session with {@code how}, unless it has already ended. Returns the end that applies.
   */
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

  /** Ends a session whose client left before the handshake was answered. */
  void gone() {
    lock.lock();
    try {
      end(End.EOF);
    } finally {
      lock.unlock();
    }
  }

  /** Reports the connection as never idle to Helidon: the contract has no idle limit. */
  @Override
  public Duration idleTime() {
    return Duration.ZERO;
  }

  /** Called when Helidon's server stops; the sessions were drained before. */
  @Override
  public void close(boolean interrupt) {
    drain();
  }
}
