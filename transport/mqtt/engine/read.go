package engine

import (
	"io"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

const (
	// maxIncoming caps a packet's remaining length. The largest packets from a hub carry the JSON of a
	// method or twin. Over MQTT 3.1.1 a broker cannot know it, so a larger PUBLISH is skipped.
	maxIncoming = 1 << 20
	// minRead and maxRead are the smallest and the largest size of the read buffer between large
	// packets; it grows when reads fill it.
	minRead, maxRead = 256, 8 << 10
)

// read reads and handles packets until the connection ends, and returns why it ended.
func (s *session) read() error {
	s.waited = time.Since(s.connackAt) // during the handshake
	if s.backlog.Release(); s.backlog.Over() {
		return mqttwire.ErrBehind
	}
	for {
		want, err := s.handlePackets()
		if err != nil {
			return err
		}
		s.waited = 0
		space := s.readSpace(want)
		if at := s.nextReadDeadline(); !at.IsZero() {
			_ = s.conn.SetReadDeadline(at)
			s.receiving.Report(s.progress)
		}
		n, err := s.conn.Read(space)
		if n == 0 {
			switch {
			case err == nil:
				return io.ErrNoProgress
			case err == io.EOF: //nolint:errorlint // a tunnel's error around it says more
				return mqttwire.HubClosed{}
			case mqttwire.TimedOut(err):
				if s.mayAnswer() || s.wasStopped() {
					continue
				}
				return mqttwire.ErrNoPong
			}
			return err
		}
		s.heard(n == len(space))
		s.receiving.Add(n)
		if n <= s.skip {
			s.skip -= n
			continue
		}
		s.unread += copy(space, space[s.skip:n])
		s.skip = 0
	}
}

// heard notes that the peer has sent something: it has the whole time again. Inlined, it would take
// an idle session's stack above 2 KB.
//
//go:noinline
func (s *session) heard(filled bool) {
	if s.deadline.Sub(s.deadlineSet) < s.readTimeout() { // mayAnswer gave less
		s.deadlineSet = time.Time{}
	}
	s.filled, s.excused = filled, false
}

// mayAnswer reports whether the answer to a ping may still come; if so it extends the read
// deadline. The connection must have progressed within PingTimeout with bytes that precede the
// ping. Or it gets, once until the peer sends something and if all bytes are sent, the time that a
// slow hop behind it may need for the messages that were not acknowledged, up to the size of one.
func (s *session) mayAnswer() bool {
	now := time.Now()
	var until time.Time
	var waits bool
	if p, ok := s.conn.(transport.Progressor); ok {
		until, waits = p.Progress()
		until = until.Add(s.t.opt.PingTimeout)
	}
	switch {
	case s.excused: // a slow write may have ended that time early
		until = times.Later(until, s.deadline)
	case !waits && !now.Before(until):
		s.excused = true
		s.mu.Lock()
		until = now.Add(times.Transfer(s.unackedBytes))
		s.mu.Unlock()
	}
	if !now.Before(until) {
		return false
	}
	s.deadlineSet, s.deadline = now, until
	_ = s.conn.SetReadDeadline(until)
	return true
}

// wasStopped reports whether the read deadline passed so long ago that the process must have been
// stopped, by a signal or with its virtual machine. Then the answer may be in the socket: the read
// is repeated, with a new deadline.
func (s *session) wasStopped() bool {
	s.mu.Lock()
	moved := s.writeProgress.Add(s.readTimeout())
	s.mu.Unlock()
	return time.Since(times.Later(s.deadline, moved)) > time.Second
}

// nextReadDeadline returns the read deadline to set now, or zero if it was moved less than
// deadlineInterval ago. The caller sets it: with one more stack frame above the socket, an idle
// session's stack has 4 KB instead of 2.
func (s *session) nextReadDeadline() time.Time {
	now := time.Now()
	if now.Sub(s.deadlineSet) < s.t.opt.deadlineInterval() {
		return time.Time{}
	}
	s.deadlineSet, s.deadline = now, now.Add(s.readTimeout())
	return s.deadline
}

// readSpace returns the free part of the read buffer, with space for want bytes at least.
func (s *session) readSpace(want int) []byte {
	t := s.t
	if t.opt.ReadBuffer > 0 {
		return t.in[s.unread:] // handlePackets skips a packet that does not fit
	}
	size := max(len(t.in), minRead)
	switch {
	case s.unread+want > size:
		size = s.unread + want
	case s.filled && size < maxRead:
		size *= 2
	case s.unread == 0 && size > maxRead:
		size = maxRead // shrinks after a large packet
	}
	if size != len(t.in) {
		grown := make([]byte, size)
		copy(grown, t.in[:s.unread])
		t.in = grown
	}
	return t.in[s.unread:]
}

// handlePackets handles the whole packets in the read buffer and moves the rest to its front. It
// returns the least number of bytes missing from the packet there.
func (s *session) handlePackets() (want int, err error) {
	in := s.t.in[:s.unread]
	for want = 1; len(in) > 0; {
		h, ok, err := s.next(in)
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		size := h.Size + h.Body
		if size > len(in) {
			more, tooLarge, err := s.incomplete(h, in)
			if tooLarge {
				s.skip, s.unread, more = more, 0, 1
			}
			if err != nil || tooLarge {
				return more, err
			}
			want = more
			break
		}
		if err := s.handle(h, in[h.Size:size]); err != nil {
			return 0, err
		}
		in = in[size:]
	}
	s.unread = copy(s.t.in, in)
	return want, nil
}

// incomplete returns how many bytes are missing from the packet of which in is the beginning. They
// are to be skipped if the packet is too large; until its head is there, those of the head are
// missing.
func (s *session) incomplete(h mqttwire.Header, in []byte) (more int, tooLarge bool, err error) {
	size, room := h.Size+h.Body, s.t.opt.ReadBuffer
	s.receiving.Begin(size, len(in))
	switch {
	case room == 0 && h.Body > maxIncoming:
		room = mqttwire.MaxHead
	case room == 0 || size <= room:
		return size - len(in), false, nil
	}
	if h.Type == mqttwire.Publish {
		if len(in) < room {
			return room - len(in), false, nil
		}
		err = s.backlog.Missed(h.Flags, in[h.Size:], size)
	}
	return size - len(in), true, err
}

// next reads the header of the packet at the beginning of in, and checks its size. It returns false
// when in ends within the header.
func (s *session) next(in []byte) (h mqttwire.Header, ok bool, err error) {
	if v := s.t.newer; v != nil {
		return v.next(in)
	}
	h, ok, err = mqttwire.Next(in)
	switch {
	case err != nil:
		err = mqttwire.Violation{Err: err}
	case ok && h.Type != mqttwire.Publish && h.Body > 2+maxSubackCodes: // a PUBLISH: see incomplete
		err = tooLongPacket(h)
	}
	return h, ok, err
}

func tooLongPacket(h mqttwire.Header) mqttwire.Violation {
	return mqttwire.NewViolation("the hub sent a packet of type " + strconv.Itoa(int(h.Type)) + " with " +
		strconv.Itoa(h.Body) + " bytes")
}
