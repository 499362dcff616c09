package org.apache.pekko.http.wsladder

import org.apache.pekko.NotUsed
import org.apache.pekko.http.impl.engine.ws.{FrameEvent, FrameEventParser}
import org.apache.pekko.stream.scaladsl.Source
import org.apache.pekko.util.ByteString

/** Pekko HTTP's reader of frames, for tests. */
object Framing:
  /** Frames of these bytes, as `Some`; `None` where the library finds a rule broken. */
  def read(bytes: Source[ByteString, NotUsed]): Source[Option[FrameEvent], NotUsed] =
    bytes.via(FrameEventParser).map(Some(_)).recover { case _ => None }
