package device

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// A feature is an optional part of the client: cloud-to-device messages, the twin, direct methods.
// The client adds it at its first use, so a program links only the features that it uses. It holds
// functions for the same reason as sink. A nil function does nothing.
//
// The loop calls wants to over. Start, Disconnected and Close call resume, halt and end. The other
// functions may be called at any time, by any goroutine.
type feature struct {
	// wants returns the subscriptions that a session needs before the connection counts as up, and
	// those that waiting calls need in addition.
	wants func() (always, now transport.Features)
	// refused reports that the session does not grant what wants returned as now. The feature does not
	// ask again at once.
	refused func(l *loop, why *transport.Error)
	// begin reports that s is up. serve is called after it.
	begin func(s transport.Session)
	// serve hands the live session what may be sent, and returns when to call it again without a poke;
	// zero: never.
	serve func(l *loop, now time.Time) time.Time
	// busy reports whether work is in flight that the end of the session would lose: handlers or their
	// results, and calls of the program.
	busy func() (handlers, calls bool)
	// over reports that the session has ended.
	over func(l *loop)
	// resume reports that the client begins to connect, halt that it stops trying, and why.
	resume func()
	halt   func(why *transport.Error)
	// end reports that Close was called. It returns a channel for Close to wait on, nil for none.
	end func() <-chan struct{}

	reply   func(id uint32, r transport.Reply)
	deliver func(d *transport.Delivery) bool
	// held returns the version of the desired properties that the client has, 0 for none.
	held func() int64
	// settled returns how many messages of the hub need not come again.
	settled func() uint64
	fill    func(s *Stats)
}

// features is the list of a client's features. A list is immutable.
type features []*feature

func (l features) wants() (always, now transport.Features) {
	for _, x := range l {
		a, n := x.wants()
		always |= a
		now |= n
	}
	return always, now
}

func (l features) serve(loop *loop, now time.Time) (next time.Time) {
	for _, x := range l {
		if at := x.serve(loop, now); !at.IsZero() {
			next = earlier(at, next)
		}
	}
	return next
}

func (l features) busy() (handlers, calls bool) {
	for _, x := range l {
		h, c := x.busy()
		handlers, calls = handlers || h, calls || c
	}
	return handlers, calls
}

func (l features) reply(id uint32, r transport.Reply) {
	for _, x := range l {
		if x.reply != nil {
			x.reply(id, r)
		}
	}
}

func (l features) deliver(d *transport.Delivery) bool {
	for _, x := range l {
		if x.deliver(d) {
			return true
		}
	}
	return false
}

// end ends all features and returns the channels that Close waits for.
func (l features) end() (all []<-chan struct{}) {
	for _, x := range l { // end all before Close waits for one
		if one := x.end(); one != nil {
			all = append(all, one)
		}
	}
	return all
}

// begin begins the features that were added since the last call for k.
func (l features) begin(k *connection) {
	for ; k.begun < len(l); k.begun++ {
		l[k.begun].begin(k.session)
	}
}

func (l features) over(loop *loop) {
	for _, x := range l {
		x.over(loop)
	}
}

func (l features) resume() {
	for _, x := range l {
		if x.resume != nil {
			x.resume()
		}
	}
}

func (l features) halt(why *transport.Error) {
	for _, x := range l {
		if x.halt != nil {
			x.halt(why)
		}
	}
}

func (l features) fill(s *Stats) {
	for _, x := range l {
		x.fill(s)
	}
}

func (l features) settled() (n uint64) {
	for _, x := range l {
		if x.settled != nil {
			n += x.settled()
		}
	}
	return n
}

func (l features) held() (version int64) {
	for _, x := range l {
		if x.held != nil {
			version = x.held()
		}
	}
	return version
}

func (l features) refused(loop *loop, why *transport.Error) {
	for _, x := range l {
		if x.refused != nil {
			x.refused(loop, why)
		}
	}
}

// sink is the client as its sessions see it. It holds functions: methods of a type that refers to
// Client would make a board's linker keep the type descriptions of all of Client, which are 6 KB.
type sink struct {
	done    func(tag uint16, err error)
	reply   func(id uint32, r transport.Reply)
	deliver func(d *transport.Delivery) bool
}

func (s *sink) Done(tag uint16, err error) { s.done(tag, err) }

func (s *sink) Reply(id uint32, r transport.Reply) { s.reply(id, r) }

func (s *sink) Deliver(d *transport.Delivery) bool { return s.deliver(d) }
