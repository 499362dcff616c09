package wsladder.gateway;

import java.io.BufferedOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import javax.net.SocketFactory;
import okhttp3.Call;
import okhttp3.ConnectionPool;
import okhttp3.MediaType;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.RequestBody;
import okhttp3.Response;
import okhttp3.ResponseBody;
import okhttp3.internal.http2.ConnectionShutdownException;
import okhttp3.internal.http2.StreamResetException;
import okio.BufferedSink;
import wsladder.gateway.Inbox.Batch;
import wsladder.gateway.Protocol.Failure;
import wsladder.gateway.Protocol.Kind;
import wsladder.gateway.Protocol.Outcome;

/**
 * Requests to the inference: OkHttp and HTTP/2 with prior knowledge, over a fixed number of
 * connections. A session always uses the same connection. A request blocks the virtual thread that
 * sends it.
 */
final class Inference {
  private static final Duration CONNECT_TIMEOUT = Duration.ofSeconds(1);

  /** Interval of the HTTP/2 pings that detect a dead connection. */
  private static final Duration PING_INTERVAL = Duration.ofSeconds(15);

  /** Longest response that is read; a valid one has a few hundred bytes. */
  private static final long MAX_RESPONSE_BYTES = 64 << 10;

  /** Size of the send buffer: a request with 1 s of audio is written with one system call. */
  private static final int SEND_BUFFER_BYTES = 64 << 10;

  private static final MediaType AUDIO = MediaType.get("application/octet-stream");

  private final List<OkHttpClient> clients;
  private final AtomicInteger sessions = new AtomicInteger();
  private final Request template;
  private final long timeoutMs;
  private final int cpuPasses;

  Inference(Config config) {
    this.timeoutMs = config.inferenceTimeoutMs();
    this.cpuPasses = config.cpuPasses();
    this.template =
        new Request.Builder()
            .url(config.inferenceUrl().resolve("/infer").toString())
            .header("x-cpu-passes", Integer.toString(cpuPasses))
            // Without this header OkHttp requests gzip.
            .header("accept-encoding", "identity")
            .build();
    List<OkHttpClient> created = new ArrayList<>();
    for (int i = 0; i < config.inferenceHttpClients(); i++) {
      created.add(newClient());
    }
    this.clients = List.copyOf(created);
  }

  private OkHttpClient newClient() {
    return new OkHttpClient.Builder()
        .protocols(List.of(okhttp3.Protocol.H2_PRIOR_KNOWLEDGE))
        .connectionPool(new ConnectionPool(1, 1, TimeUnit.DAYS))
        .socketFactory(new BufferingSocketFactory())
        .callTimeout(Duration.ofMillis(timeoutMs))
        .connectTimeout(CONNECT_TIMEOUT)
        // The call timeout covers the whole request and costs less than a timeout for each step.
        .readTimeout(Duration.ZERO)
        .writeTimeout(Duration.ZERO)
        .pingInterval(PING_INTERVAL)
        .followRedirects(false)
        .build();
  }

  /** Returns the connection for a new session. Sessions take the connections in turn. */
  Connection assignConnection() {
    return new Connection(clients.get(Math.floorMod(sessions.getAndIncrement(), clients.size())));
  }

  /** The connection that a session uses for all its requests. */
  final class Connection {
    private final OkHttpClient client;

    private Connection(OkHttpClient client) {
      this.client = client;
    }

    /** Creates the request for a batch. It can be cancelled at any time. */
    Call prepare(Batch batch) {
      return client.newCall(template.newBuilder().post(new AudioBody(batch)).build());
    }

    /** Sends a request, waits for the response and returns the outcome of the batch. */
    Outcome execute(Call call, Batch batch) {
      try (Response response = call.execute()) {
        return parse(response, batch);
      } catch (IOException e) {
        return failure(e);
      }
    }
  }

  private Outcome parse(Response response, Batch batch) throws IOException {
    int status = response.code();
    if (!response.isSuccessful()) {
      Kind kind = status == 429 ? Kind.HTTP_429 : Kind.HTTP_5XX;
      return new Failure(kind, status, "the inference answered " + status);
    }
    ResponseBody body = response.body();
    if (body.source().request(MAX_RESPONSE_BYTES + 1)) {
      return new Failure(Kind.PARSE_ERROR, status, "the inference's answer is too long");
    }
    return Recognition.parse(
        body.source().readByteArray(), status, batch.taken().span(), cpuPasses);
  }

  /**
   * Classifies an exception: the call timeout, a failure of the connection, or else a peer that
   * violates HTTP/2, which is a parse error.
   */
  private Failure failure(IOException e) {
    if (e instanceof InterruptedIOException && !(e instanceof java.net.SocketTimeoutException)) {
      return new Failure(Kind.TIMEOUT, null, "no answer within " + timeoutMs + " ms");
    }
    boolean isConnectionFailure =
        e instanceof SocketException
            || e instanceof EOFException
            || e instanceof InterruptedIOException
            || e instanceof ConnectionShutdownException
            || e instanceof StreamResetException
            || e.getCause() instanceof EOFException
            || e.getCause() instanceof SocketException;
    if (isConnectionFailure) {
      return new Failure(
          Kind.CONNECTION_RESET, null, "the connection to the inference failed: " + e.getMessage());
    }
    return new Failure(
        Kind.PARSE_ERROR, null, "the inference does not speak HTTP/2: " + e.getMessage());
  }

  /** The audio of a batch as the body of a request. */
  private static final class AudioBody extends RequestBody {
    private final Batch batch;

    private AudioBody(Batch batch) {
      this.batch = batch;
    }

    @Override
    public MediaType contentType() {
      return AUDIO;
    }

    @Override
    public long contentLength() {
      return batch.length();
    }

    /** Keeps OkHttp from repeating a request of which a part was already sent. */
    @Override
    public boolean isOneShot() {
      return true;
    }

    @Override
    public void writeTo(BufferedSink sink) throws IOException {
      sink.write(batch.audio(), batch.offset(), batch.length());
    }
  }

  /**
   * Creates sockets that buffer until OkHttp flushes, so that a request is one system call. Without
   * the buffer OkHttp writes each segment of 8 KiB separately, and each write wakes the inference.
   */
  private static final class BufferingSocketFactory extends SocketFactory {
    @Override
    public Socket createSocket() throws SocketException {
      Socket socket = new BufferingSocket();
      // A request is one write: it must not wait until the inference has acknowledged earlier
      // bytes.
      socket.setTcpNoDelay(true);
      return socket;
    }

    @Override
    public Socket createSocket(String host, int port) {
      throw new UnsupportedOperationException("OkHttp connects by itself");
    }

    @Override
    public Socket createSocket(String host, int port, InetAddress local, int localPort) {
      throw new UnsupportedOperationException("OkHttp connects by itself");
    }

    @Override
    public Socket createSocket(InetAddress host, int port) {
      throw new UnsupportedOperationException("OkHttp connects by itself");
    }

    @Override
    public Socket createSocket(InetAddress host, int port, InetAddress local, int localPort) {
      throw new UnsupportedOperationException("OkHttp connects by itself");
    }
  }

  private static final class BufferingSocket extends Socket {
    private OutputStream out;

    @Override
    public synchronized OutputStream getOutputStream() throws IOException {
      if (out == null) {
        out = new BufferedOutputStream(super.getOutputStream(), SEND_BUFFER_BYTES);
      }
      return out;
    }
  }
}
