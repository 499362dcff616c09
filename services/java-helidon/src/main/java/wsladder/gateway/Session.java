package wsladder.gateway;

import io.helidon.common.buffers.BufferData;
import io.helidon.common.buffers.DataReader;
import io.helidon.common.concurrency.limits.Limit;
import io.helidon.http.Headers;
import io.helidon.http.HttpPrologue;
import io.helidon.webserver.ConnectionContext;
import io.helidon.webserver.spi.ServerConnection;
import io.helidon.webserver.websocket.WsConnection;
import io.helidon.websocket.WsSession;
import java.time.Duration;
import java.util.concurrent.locks.ReentrantLock;

/**
 * One session, from its upgrade to its last byte.
 *
 * <p>Its reader is the virtual thread on which Helidon parses frames. Once the session has started,
 * the reader pauses whenever it has parsed all bytes that it read. The clock resumes it at the
 * session's ticks and a few times in between. Meanwhile audio waits in the kernel's receive buffer,
 * so one wake-up takes many frames. Three threads use the session (the reader, the clock, and the
 * thread that waits for the inference), so a lock guards its state. The reader holds the lock while
 * it parses frames and never while it waits.
 */
final class Session implements ServerConnection, Clock.AlarmListener {
  /** Time for the close handshake: to write the Close frame and to discard inbound bytes. */
  private static final long LINGER_NANOS = 1_000_000_000L;

  /** Time for a session's last batch when the gateway stops, before the close handshake. */
  private static final long DRAIN_NANOS = 2_800_000_000L;

  private final Gateway gateway;
  private final SocketReader socketReader;
  private final ReentrantLock lock = new ReentrantLock();
  private final ReaderThread reader = new ReaderThread(lock);
  private final Outbox outbox;
  private final Inbox inbox;
  private final InferenceRequests requests;
  private final ServerConnection webSocketConnection;

  private WsSession webSocket;

  /** {@code null} until the start message. */
  private Schedule schedule;

  /** {@code null} until the session has ended. */
  private CloseReason closeReason;

  /** Time at which the last read returned, and the number of its bytes that are not counted yet. */
  private long readAt;

  private int bytesRead;

  /** Time of the next read, of the next tick, or of the end of the drain. */
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
    this.socketReader = new SocketReader(socket);
    this.outbox =
        new Outbox(
            socket.dataWriter(),
            bytes -> gateway.books().update(counts -> counts.bytesSent += bytes));
    this.inbox = gateway.inbox();
    this.requests = new InferenceRequests(gateway, inbox, this::completeRequest);
    PacedContext paced = new PacedContext(socket, DataReader.create(this::read), outbox);
    this.webSocketConnection =
        WsConnection.create(paced, prologue, headers, key, new Listener(this));
  }

  /**
   * Runs the session on the calling thread, which becomes its reader. Returns when the Close frame
   * is written and the client has ended the stream, or when the time for that is over.
   */
  @Override
  public void handle(Limit limit) {
    reader.attach();
    readAt = System.nanoTime();
    gateway.sessions().add(this);
    boolean mayStillSend = false;
    lock.lock();
    try {
      webSocketConnection.handle(limit);
      // Helidon returns after the reply to a Close frame. The session has then already ended, and
      // this call changes nothing.
      end(CloseReason.ERROR);
    } catch (RuntimeException | InterruptedException e) {
      mayStillSend = end(CloseReason.of(e)).needsLinger();
    } finally {
      lock.unlock();
    }
    linger(mayStillSend);
    gateway.sessions().remove(this);
  }

  /**
   * Waits until the Close frame is written and the client has ended the stream. Inbound bytes are
   * read and discarded meanwhile: unread bytes would make the kernel reset the connection, and the
   * Close frame could be lost. The clock closes the socket at {@code deadline}.
   */
  private void linger(boolean mayStillSend) {
    try {
      outbox.flush();
      outbox.awaitEmpty(deadline);
      if (mayStillSend) {
        socketReader.discard();
      }
    } catch (RuntimeException e) {
      // The connection has ended, so there is nothing more to wait for.
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  /**
   * Supplies Helidon with more bytes. Helidon calls this when it has parsed all earlier bytes; the
   * session then counts its frames, runs a due tick and pauses before it reads.
   */
  private byte[] read() {
    countRead();
    if (schedule != null && closeReason == null) {
      runTick(System.nanoTime());
      pause();
    }
    setAlarm();
    byte[] bytes = readSocket();
    readAt = System.nanoTime();
    bytesRead = bytes == null ? 0 : bytes.length;
    return bytes;
  }

  private byte[] readSocket() {
    byte[] early = socketReader.takeEarlyBytes();
    if (early.length > 0) {
      return early;
    }
    return reader.read(schedule == null ? socketReader::readSome : socketReader::readAll);
  }

  /**
   * Pauses the reader until the clock resumes it. Returns at once if the session has ended: the
   * last frames are then read as they arrive.
   */
  private void pause() {
    if (closeReason == null) {
      setAlarm();
      reader.pause();
    }
  }

  private void setAlarm() {
    if (schedule != null && wakeAt < alarmAt) {
      alarmAt = wakeAt;
      gateway.clock().set(this, wakeAt);
    }
  }

  /** Counts the bytes and frames of the last read, and drops the oldest frames beyond the limit. */
  private void countRead() {
    int received = inbox.mark(readAt);
    int excess = inbox.dropExcess();
    int bytes = bytesRead;
    bytesRead = 0;
    if (bytes > 0) {
      gateway.books().update(counts -> counts.receive(bytes, received, excess));
    }
  }

  /** Runs the tick if it is due; during the drain, continues the drain instead. */
  private void runTick(long now) {
    if (draining) {
      continueDrain();
    } else {
      if (schedule.isDue(now)) {
        requests.tick(schedule.tick(now));
      }
      wakeAt = schedule.nextRead(now);
    }
  }

  /**
   * Checks the session's deadlines and resumes its reader. If the lock is taken, the clock tries
   * again in the next round.
   */
  @Override
  public long onAlarm(long scheduledAt, long now) {
    if (!lock.tryLock()) {
      return scheduledAt;
    }
    try {
      if (scheduledAt != alarmAt) {
        // The session has set another alarm since.
        return Clock.NEVER;
      }
      alarmAt = checkDeadlines(now);
      return alarmAt;
    } finally {
      lock.unlock();
    }
  }

  private long checkDeadlines(long now) {
    if (closeReason == null && outbox.isStalled(now)) {
      end(CloseReason.SLOW_CONSUMER);
    } else if (closeReason == null && draining && now - deadline >= 0) {
      end(CloseReason.SHUTDOWN);
    }
    if (closeReason != null) {
      return checkLinger(now);
    }
    if (now - wakeAt < 0) {
      return wakeAt;
    }
    if (reader.isPaused()) {
      reader.resume();
    } else if (reader.isWaitingForBytes()) {
      // The socket is empty, so the clock's thread runs the tick without the reader.
      runTick(now);
      return closeReason == null ? wakeAt : deadline;
    }
    // Checks again each round until the reader has run.
    return now + Clock.ROUND_NANOS;
  }

  private long checkLinger(long now) {
    if (now - deadline < 0) {
      return deadline;
    }
    socketReader.close();
    return Clock.NEVER;
  }

  /** Called by the listener when Helidon has opened the WebSocket. */
  void opened(WsSession opened) {
    webSocket = opened;
    requests.opened(opened);
    if (!gateway.books().isAccepting()) {
      // The drain began before this session was registered.
      end(CloseReason.SHUTDOWN);
    }
  }

  /** Starts the schedule: the client sent a valid start message. */
  void start() {
    schedule = gateway.schedule(readAt);
    wakeAt = schedule.nextRead(readAt);
    gateway.books().update(Books.Counts::countStart);
  }

  /** Keeps a frame of audio for the next batch. */
  void receive(BufferData audio) {
    if (closeReason == null) {
      inbox.add(audio);
    }
  }

  /** Replies to a ping with the same payload, unless the client doesn't read. */
  void pong(BufferData payload) {
    if (closeReason == null && !outbox.isStalled(System.nanoTime())) {
      webSocket.pong(payload);
      Thread.startVirtualThread(outbox::flush);
    }
  }

  /**
   * Runs {@code completion} under the lock when a request has ended, on the thread that waited for
   * the response.
   */
  private void completeRequest(Runnable completion) {
    lock.lock();
    try {
      completion.run();
      if (draining && closeReason == null) {
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
      if (closeReason != null || draining) {
        return;
      }
      draining = true;
      if (schedule == null) {
        end(CloseReason.SHUTDOWN);
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
    if (requests.isIdle()) {
      requests.send(0);
      if (requests.isIdle()) {
        end(CloseReason.SHUTDOWN);
      }
    }
  }

  /**
   * Ends the session with {@code reason}, unless it has already ended. Returns the reason that
   * applies.
   */
  CloseReason end(CloseReason reason) {
    if (closeReason != null) {
      return closeReason;
    }
    countRead();
    closeReason = reason;
    int waiting = inbox.clear();
    gateway
        .books()
        .update(
            counts -> {
              requests.abandon(counts);
              counts.close(reason, waiting);
            });
    if (reason.code() != 0 && webSocket != null) {
      webSocket.close(reason.code(), reason.text());
      Thread.startVirtualThread(outbox::flush);
    }
    deadline = System.nanoTime() + LINGER_NANOS;
    alarmAt = deadline;
    gateway.clock().set(this, deadline);
    if (reader.isPaused()) {
      reader.resume();
    }
    return reason;
  }

  /** Ends a session for which the response to the handshake couldn't be written. */
  void endAfterFailedHandshake() {
    lock.lock();
    try {
      end(CloseReason.EOF);
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
