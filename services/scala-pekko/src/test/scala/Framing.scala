package org.apache.pekko.http.wsladder

import org.apache.pekko.NotUsed
import org.apache.pekko.http.impl.engine.ws.{FrameEvent, FrameEventParser}
import org.apache.pekko.stream.scaladsl.Source
import org.apache.pekko.util.ByteString

/** Access to Pekko HTTP's frame parser, for tests. */
object Framing:
  /** Parses bytes to frame events (`Some`); `None` stands for a violation that the library detects. */
  def read(bytes: Source[ByteString, NotUsed]): Source[Option[FrameEvent], NotUsed] =
    bytes.via(FrameEventParser).map(Some(_)).recover { case _ => None }
