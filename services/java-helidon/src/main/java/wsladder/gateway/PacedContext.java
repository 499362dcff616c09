package wsladder.gateway;

import io.helidon.common.buffers.DataReader;
import io.helidon.common.buffers.DataWriter;
import io.helidon.common.socket.HelidonSocket;
import io.helidon.common.socket.PeerInfo;
import io.helidon.webserver.ConnectionContext;
import io.helidon.webserver.ListenerContext;
import io.helidon.webserver.ProxyProtocolData;
import io.helidon.webserver.Router;
import java.util.Optional;
import java.util.concurrent.ExecutorService;

/**
 * The context of a connection, with the reader and the writer replaced: the session decides when
 * Helidon's WebSocket reads the socket, and what it writes goes into the session's outbox.
 */
record PacedContext(ConnectionContext socket, DataReader dataReader, DataWriter dataWriter)
    implements ConnectionContext {
  @Override
  public ListenerContext listenerContext() {
    return socket.listenerContext();
  }

  @Override
  public ExecutorService executor() {
    return socket.executor();
  }

  @Override
  public Router router() {
    return socket.router();
  }

  @Override
  public Optional<ProxyProtocolData> proxyProtocolData() {
    return socket.proxyProtocolData();
  }

  @Override
  public HelidonSocket serverSocket() {
    return socket.serverSocket();
  }

  @Override
  public PeerInfo remotePeer() {
    return socket.remotePeer();
  }

  @Override
  public PeerInfo localPeer() {
    return socket.localPeer();
  }

  @Override
  public boolean isSecure() {
    return socket.isSecure();
  }

  @Override
  public String socketId() {
    return socket.socketId();
  }

  @Override
  public String childSocketId() {
    return socket.childSocketId();
  }
}
