package wsladder.gateway;

import io.helidon.websocket.WsSession;
import java.util.function.Consumer;
import okhttp3.Call;
import wsladder.gateway.Books.Counts;
import wsladder.gateway.Inbox.Batch;
import wsladder.gateway.Inbox.TakenFrames;
import wsladder.gateway.Protocol.ErrorContext;
import wsladder.gateway.Protocol.Failure;
import wsladder.gateway.Protocol.Kind;
import wsladder.gateway.Protocol.Outcome;

/**
 * The requests of one session: sends its audio to the inference, and the partials and errors to its
 * client. The session's lock guards all state.
 */
final class InferenceRequests {
  /** A request that was sent. Times are in nanoseconds. */
  private record InFlight(Call call, Batch batch, long startedAt, long flushLateness) {}

  private final Gateway gateway;
  private final Inbox inbox;
  private final Inference.Connection connection;
  private final Consumer<Runnable> runLocked;
  private WsSession webSocket;

  /** The request in flight; {@code null} if there is none. The field can't hold a second one. */
  private InFlight inFlight;

  /**
   * Creates the sender of a session's requests, without one in flight.
   *
   * @param runLocked runs its argument under the session's lock
   */
  InferenceRequests(Gateway gateway, Inbox inbox, Consumer<Runnable> runLocked) {
    this.gateway = gateway;
    this.inbox = inbox;
    this.connection = gateway.inference().assignConnection();
    this.runLocked = runLocked;
  }

  void opened(WsSession opened) {
    webSocket = opened;
  }

  boolean isIdle() {
    return inFlight == null;
  }

  /**
   * Counts a tick that ran {@code lateness} nanoseconds after it was due. Sends the waiting audio
   * unless a request is in flight.
   */
  void tick(long lateness) {
    boolean idle = isIdle();
    boolean empty = inbox.frames() == 0;
    gateway
        .books()
        .update(
            counts -> {
              counts.tick(lateness);
              if (!idle) {
                counts.ticksSkipped++;
              } else if (empty) {
                counts.ticksEmpty++;
              } else {
                counts.ticksFlushed++;
              }
            });
    if (idle) {
      send(lateness);
    }
  }

  /**
   * Reports dropped frames, and sends all waiting audio if there is any. No request may be in
   * flight.
   */
  void send(long lateness) {
    inbox.takeOverflow().ifPresent(dropped -> reportOverflow(dropped, lateness));
    if (inbox.frames() == 0) {
      return;
    }
    Batch batch = inbox.take();
    InFlight request = new InFlight(connection.prepare(batch), batch, System.nanoTime(), lateness);
    int inFlightCount = 1 + (inFlight == null ? 0 : 1);
    inFlight = request;
    gateway
        .books()
        .update(counts -> counts.startRequest(batch.taken().span().frames(), inFlightCount));
    Thread.startVirtualThread(() -> execute(request));
  }

  private void execute(InFlight request) {
    Outcome outcome = connection.execute(request.call(), request.batch());
    runLocked.accept(() -> complete(request, outcome));
  }

  // Compares references: the response of an abandoned request is ignored.
  @SuppressWarnings("ReferenceEquality")
  private void complete(InFlight request, Outcome outcome) {
    if (inFlight != request) {
      return;
    }
    inFlight = null;
    TakenFrames taken = request.batch().taken();
    int frames = taken.span().frames();
    switch (outcome) {
      case Recognition recognition -> {
        gateway.books().update(counts -> counts.completeRequest(frames));
        inbox.recycle(request.batch().audio());
        webSocket.send(
            Protocol.partial(taken.span(), recognition, gateway.echo(), request.flushLateness()),
            true);
      }
      case Failure failure -> {
        gateway.books().update(counts -> counts.failRequest(failure.kind(), frames));
        long elapsed = System.nanoTime() - request.startedAt();
        report(taken, failure, request.flushLateness(), elapsed);
      }
    }
  }

  private void reportOverflow(TakenFrames dropped, long lateness) {
    String message =
        "%d frames waited: the oldest %d were dropped"
            .formatted(gateway.config().maxBufferedFrames(), dropped.span().frames());
    gateway.books().update(counts -> counts.sent++);
    report(dropped, new Failure(Kind.OVERFLOW, null, message), lateness, null);
  }

  private void report(TakenFrames taken, Failure failure, long lateness, Long elapsed) {
    long now = System.nanoTime();
    ErrorContext context =
        new ErrorContext(
            now - taken.oldestReadAt(),
            now - taken.newestReadAt(),
            lateness,
            elapsed,
            inbox.frames());
    webSocket.send(Protocol.error(taken.span(), failure, context), true);
  }

  /** Cancels and counts the request in flight, if there is one. Called when the session ends. */
  void abandon(Counts counts) {
    if (inFlight != null) {
      counts.abandonRequest(inFlight.batch().taken().span().frames());
      inFlight.call().cancel();
      inFlight = null;
    }
  }
}
