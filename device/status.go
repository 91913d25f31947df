package device

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
)

// State is the state of the connection as a user sees it.
type State uint8

const (
	// Disconnected: not connected and not trying. Open and Start begin again, unless the client was
	// closed.
	Disconnected State = iota
	// DisconnectedRetrying: not connected, and trying: dialing or waiting for the next attempt.
	DisconnectedRetrying
	// Connected: messages flow, or are paused at the service's request.
	Connected
)

// String returns the state's name in words.
func (s State) String() string {
	return name(int(s), stateText[:])
}

var stateText = [...]string{Disconnected: "disconnected", DisconnectedRetrying: "retrying", Connected: "connected"}

// Reason says what led to a Status.
type Reason uint8

const (
	// NotOpened: the client is new.
	NotOpened Reason = iota
	// Connecting: an attempt to connect begins; Retry is its number, 0 for the first.
	Connecting
	// ConnectionOK: the connection is up, or messages flow again after a pause.
	ConnectionOK
	// ConnectionLost: a connection that was up ended; the next attempt is Retry, after Delay.
	ConnectionLost
	// AttemptFailed: an attempt to connect failed; the next is Retry, after Delay.
	AttemptFailed
	// Held: the retry policy is a gate (retrypolicy.Gate) that holds the next attempt to connect back
	// for Delay.
	Held
	// Paused: the service refused a message for now; all sending pauses for Delay. The connection is
	// up.
	Paused
	// Planned: the client replaces a healthy connection because Reconnect was called.
	Planned
	// TokenRenewal: the client replaces a healthy connection because its token is about to run out.
	TokenRenewal
	// ClockJumped: the client gives a connection up because the clock jumped ahead: the device has
	// slept, or the clock was set. The next attempt is Retry, after Delay. A jump within half a minute
	// after another one counts when that time is over.
	ClockJumped
	// NotRetryable: no retry can help after the failure in Err (package errfilter).
	NotRetryable
	// RetryExpired: the retry policy or OutageLimit ended the retries; Err has the last failure as its
	// cause.
	RetryExpired
	// OpenCancelled: the context of Open ended before the first connection.
	OpenCancelled
	// ClientClosed: Close was called.
	ClientClosed
)

// String returns the reason's name in words.
func (r Reason) String() string { return name(int(r), reasonText[:]) }

var reasonText = [...]string{
	NotOpened: "not opened", Connecting: "connecting", ConnectionOK: "connection ok", ConnectionLost: "connection lost",
	AttemptFailed: "attempt failed", Held: "held back",
	Paused: "paused", Planned: "planned", TokenRenewal: "token renewal", ClockJumped: "clock jumped",
	NotRetryable: "not retryable", RetryExpired: "retries ended", OpenCancelled: "open cancelled",
	ClientClosed: "client closed",
}

func name(i int, names []string) string {
	if i >= len(names) {
		return "undefined"
	}
	return names[i]
}

// Suspect is a guess why a connection does not last.
type Suspect uint8

const (
	// NoSuspect: there is no pattern, or the connection lasts.
	NoSuspect Suspect = iota
	// SecondDevice: connections end while nothing is in flight: another program may use the same
	// device id, and each connection of one ends that of the other.
	SecondDevice
	// BadMessage: connections end with the same large message in flight and nothing acknowledged: the
	// hub may not take it.
	BadMessage
	// QuotaUsedUp: connections end as soon as something is sent, and nothing is acknowledged: a quota
	// may be used up, or the hub throttles.
	QuotaUsedUp
	// Unstable: messages get through, but connections do not last: the network, or the hub's
	// throttling.
	Unstable
)

// String returns the guess as a sentence; empty for NoSuspect.
func (s Suspect) String() string { return name(int(s), suspectText[:]) }

var suspectText = [...]string{
	NoSuspect:    "",
	SecondDevice: "another program may be using the same device id",
	BadMessage:   "the hub may not take the message that is first in the queue",
	QuotaUsedUp:  "the hub's quota may be used up, or it throttles",
	Unstable:     "the network is unstable, or the hub throttles",
}

// Status is one step in the life of the connection. A Status does not change.
type Status struct {
	State  State
	Reason Reason
	// Retry is the number of the attempt that is about to come (ConnectionLost, AttemptFailed), has
	// begun (Connecting) or, for Paused, of the resend. 0 is a first attempt. For ConnectionOK it is
	// how many retries it took. Once a connection stayed up for Options.StableTime, or was useful (see
	// there), its loss begins the count anew.
	Retry int
	// Delay is the wait before that attempt, from the failure on. Reconnect ends it early. After
	// SetRetryPolicy there is another Status with the new delay, still from the failure on.
	Delay time.Duration
	// Err is the failure that led here, an *transport.Error; nil when there was none.
	Err error
	// Flaps counts the connections in a row, up to this status, that were lost before they were up for
	// Options.StableTime; 0 or 1 is nothing to speak of.
	Flaps int
	// Suspect is a guess at the cause when Flaps is 3 or more. A hub often can only hang up
	// on a device, without a reason.
	Suspect Suspect
	// Since is when the client got here, by the clock of the process.
	Since time.Time
	// Missed counts the statuses before this one that were dropped because OnStatus was busy.
	Missed int
}

// Hint is a sentence for the person who reads the status: why the client does or does not retry
// after Err, and what helps. Empty without Err.
func (s Status) Hint() string {
	if s.Err == nil {
		return ""
	}
	return errfilter.Of(s.Err).Reason
}

// noticeQueue is how many statuses wait for OnStatus at the most.
const noticeQueue = 16

// notices is the queue of statuses for OnStatus. Client.mu guards it.
type notices struct {
	queue   []Status // noticeQueue long, nil without OnStatus
	first   int
	n       int
	missed  int
	running bool
	ended   chan struct{} // closed when the running dispatcher has ended
}

func (q *notices) push(s Status) {
	if q.n == len(q.queue) {
		q.first = (q.first + 1) % len(q.queue)
		q.n--
		q.missed++
	}
	q.queue[(q.first+q.n)%len(q.queue)] = s
	q.n++
}

func (q *notices) pop() (Status, bool) {
	if q.n == 0 {
		return Status{}, false
	}
	s := q.queue[q.first]
	q.queue[q.first] = Status{}
	q.first = (q.first + 1) % len(q.queue)
	q.n--
	s.Missed, q.missed = q.missed, 0
	return s, true
}

// publish publishes a status of the loop, unless its run is over.
func (l *loop) publish(s Status) {
	s.Flaps, s.Suspect = l.flaps.flaps, l.flaps.suspect()
	l.c.mu.Lock()
	if !l.own.over {
		if s.Err != nil || s.State == Connected {
			l.own.last = s.Err
		}
		l.c.publishLocked(s)
	}
	l.c.mu.Unlock()
}

// publishLocked is the one place where the status changes.
func (c *Client) publishLocked(s Status) {
	if c.status.Reason == ClientClosed {
		return
	}
	s.Since = time.Now()
	c.counters.observe(c.status, s)
	c.status = s
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	if c.set.OnStatus == nil {
		return
	}
	c.notices.push(s)
	if !c.notices.running {
		c.notices.running = true
		c.notices.ended = make(chan struct{})
		go c.dispatch(c.notices.ended)
	}
}

// tell calls OnStatus.
func (c *Client) tell(s Status) {
	panicked := true // also when it ends the goroutine
	watch(func() { panicked = protect(c.set.Trace, func() { c.set.OnStatus(s) }) }, func(bool) {
		if panicked {
			c.mu.Lock()
			c.counters.panics++
			c.mu.Unlock()
		}
	})
}

// dispatch calls OnStatus until the queue is empty and ends. There is one at a time; publish starts
// it, Close joins it.
func (c *Client) dispatch(ended chan struct{}) {
	watch(c.tellAll, func(returned bool) {
		if returned {
			close(ended)
		} else { // OnStatus ended this goroutine
			go c.dispatch(ended)
		}
	})
}

// tellAll calls OnStatus until the queue is empty.
func (c *Client) tellAll() {
	for {
		c.mu.Lock()
		s, ok := c.notices.pop()
		if !ok {
			c.notices.running = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		c.tell(s)
	}
}
