package interop

import (
	"context"
	"flag"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport/netopt"
)

var (
	kills    = flag.Int("kills", 3, "nodes killed in each run against a cluster")
	messages = flag.Int("messages", 1500, "numbered messages of each sender in these runs")
)

const (
	siegeWindow  = 64                     // messages without a result, for each sender
	siegeBurst   = 32                     // messages without a pause
	siegePace    = 2 * time.Millisecond   // for each message, on average
	siegeBackoff = 100 * time.Millisecond // of every client
)

// cluster is a broker whose processes a test kills.
type cluster interface {
	leader() int // the node that leads the data
	nodes() int
	kill(node int) // SIGKILL
	revive(node int)
	settled() // waits until every node has all data
}

// sender is a client under test. send returns once the client has taken the message; it may block.
// The returned function waits for the result.
type sender interface {
	send(n int, body []byte) (wait func() error)
	close()
}

// load is one sender with its ledger.
type load struct {
	*ledger
	client sender
	must   bool // the test fails when the ledger does not add up; else it only reports
	anew   bool // messages sent again are not marked: by paho, and over MQTT 5 for a session that is forgotten
	done   atomic.Int64
	taken  atomic.Int64
}

// siege is one run: senders under load while nodes are killed and come back.
type siege struct {
	t       testing.TB
	c       cluster
	loads   []*load
	quota   int
	open    chan struct{} // replaced with each kill
	mu      sync.Mutex
	allowed int
}

func newSiege(t testing.TB, c cluster) *siege {
	return &siege{t: t, c: c, quota: *messages / *kills, open: make(chan struct{})}
}

// add adds a sender. start makes its client; it must send to the ledger's name what it says.
func (s *siege) add(name string, must bool, start func(l *ledger) sender) {
	l := &load{ledger: newLedger(name, s.quota**kills), must: must}
	l.client = start(l.ledger)
	s.loads = append(s.loads, l)
}

// arrived is for the observer: a message has come.
func (s *siege) arrived(payload []byte) {
	name := strings.TrimRight(strings.SplitN(string(payload), "#", 2)[0], " ")
	var n int
	_, _ = fmt.Sscanf(string(payload[len(payload)-6:]), "%d", &n)
	for _, l := range s.loads {
		if l.name == name {
			l.arrived(n)
			return
		}
	}
	s.t.Errorf("arrived: %q", payload)
}

// allow lets the senders go on to n messages.
func (s *siege) allow(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed = n
	close(s.open)
	s.open = make(chan struct{})
}

// await waits until message n may be sent.
func (s *siege) await(n int) {
	for {
		s.mu.Lock()
		ok, open := n < s.allowed, s.open
		s.mu.Unlock()
		if ok {
			return
		}
		<-open
	}
}

// send sends all messages of one load, at most a window without result.
func (s *siege) send(l *load) {
	type pending struct {
		n    int
		wait func() error
	}
	results := make(chan pending, siegeWindow)
	var wg sync.WaitGroup
	wg.Go(func() {
		for p := range results {
			l.ended(p.n, p.wait())
			l.done.Add(1)
		}
	})
	pace := time.NewTicker(siegePace * siegeBurst)
	defer pace.Stop()
	for n := range len(l.messages) {
		s.await(n)
		if n%siegeBurst == 0 {
			<-pace.C
		}
		l.queued(n)
		results <- pending{n, l.client.send(n, l.body(n))}
		l.taken.Add(1)
	}
	close(results)
	wg.Wait()
}

// siegeLimit bounds the wait for a result. A broker that swallows a message during an election is
// found out by AckTimeout, 30 s, and may swallow the next attempt too.
const siegeLimit = 3 * waitLimit

// reached waits until each sender has results for that many messages. A sender that is only
// compared may lag: it is not waited for longer than the limit.
func (s *siege) reached(what string, limit time.Duration, n func(l *load) int) {
	s.t.Helper()
	end, compared := time.Now().Add(siegeLimit), time.Now().Add(limit)
	for _, l := range s.loads {
		for want := int64(n(l)); l.done.Load() < want; time.Sleep(time.Millisecond) {
			if !l.must && time.Now().After(compared) {
				break
			}
			if time.Now().After(end) {
				s.t.Fatalf("%s: %s has %d results within %v, want %d", what, l.name, l.done.Load(), siegeLimit, want)
			}
		}
	}
}

// busy waits, for a second at most, until a sender has a burst in flight.
func (s *siege) busy() {
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(50 * time.Microsecond) {
		for _, l := range s.loads {
			if l.taken.Load()-l.done.Load() >= siegeBurst/2 {
				return
			}
		}
	}
}

// published waits, for a second at most, until each sender has taken more messages for the dead
// broker.
func (s *siege) published() {
	want := make([]int64, len(s.loads))
	for i, l := range s.loads {
		want[i] = l.taken.Load() + siegeBurst/2
	}
	end := time.Now().Add(time.Second)
	for i, l := range s.loads {
		for l.taken.Load() < want[i] && time.Now().Before(end) {
			time.Sleep(time.Millisecond)
		}
	}
}

// run sends everything and kills nodes, the leader first and then at every second kill.
func (s *siege) run() {
	t := s.t
	var senders sync.WaitGroup
	for _, l := range s.loads {
		senders.Go(func() { s.send(l) })
	}
	began := time.Now()
	for k := range *kills {
		upTo := (k + 1) * s.quota
		s.allow(upTo)
		s.reached("before the kill", 15*time.Second, func(*load) int { return k*s.quota + s.quota/2 })
		leader := s.c.leader()
		victim := leader
		if k%2 == 1 && s.c.nodes() > 1 {
			victim = (leader + 1 + k/2%(s.c.nodes()-1)) % s.c.nodes()
		}
		s.busy()
		at := time.Now()
		s.c.kill(victim)
		if s.c.nodes() > 1 {
			s.reached("sending while a node is dead", 15*time.Second, func(l *load) int {
				return min(int(l.taken.Load())+1, upTo)
			})
		} else {
			s.published()
		}
		served := time.Since(at)
		s.c.revive(victim)
		s.c.settled()
		settled := time.Since(at)
		s.reached("after the node came back", 15*time.Second, func(*load) int { return upTo })
		t.Logf("kill %d: node %d (leader %d): served after %v, complete after %v, all answered after %v", k+1, victim, leader,
			served.Round(time.Millisecond), settled.Round(time.Millisecond), time.Since(at).Round(time.Millisecond))
	}
	senders.Wait()
	t.Logf("%d kills in %v", *kills, time.Since(began).Round(time.Second))
}

// check waits for the arrivals and reports the ledgers.
func (s *siege) check() {
	t := s.t
	end := time.Now().Add(waitLimit / 2)
	for _, l := range s.loads {
		for l.missing() > 0 && time.Now().Before(end) {
			time.Sleep(10 * time.Millisecond)
		}
	}
	fmt.Printf("SEEN: %s: %d kills, %d messages each, window %d\n", t.Name(), *kills, s.quota**kills, siegeWindow)
	fmt.Println("| client | arrived | lost by the client | lost by the broker | doubled | first copies out of order | " +
		"errors, of these false | results before the broker's | sent again, unmarked | longest gap |")
	fmt.Println("|--|--|--|--|--|--|--|--|--|--|")
	for _, l := range s.loads {
		b := l.balance()
		fmt.Printf("| %s | %d | %d | %d | %d | %d | %d, %d | %d | %d, %d | %.1f s |\n", l.name, b.arrived, b.lostByClient,
			b.lostByBroker, b.doubled, b.disorder, b.errors, b.falseErrors, b.early, b.resent, b.unmarked, b.gap.Seconds())
		if b.said != "" {
			fmt.Printf("SEEN: %s said: %s\n", l.name, b.said)
		}
	}
	for _, l := range s.loads {
		if !l.must {
			continue
		}
		b := l.balance()
		require.Zero(t, b.lostByClient, "%s: lost by the client", l.name)
		require.Zero(t, b.lostByBroker, "%s: acknowledged by the broker and not arrived", l.name)
		require.Zero(t, b.errors, "%s: %s", l.name, b.said)
		require.Zero(t, b.early, "%s: results before the broker's", l.name)
		require.Zero(t, b.behind, "%s: written out of order", l.name)
		if s.c.nodes() == 1 { // brokers that lose a node of several change the order, see package interop
			require.Zero(t, b.disorder, "%s: out of order though sent once", l.name)
		}
		if !l.anew {
			require.Zero(t, b.unmarked, "%s: sent again without a mark", l.name)
		}
		require.LessOrEqual(t, b.doubled, siegeWindow**kills, l.name)
	}
	for _, l := range s.loads {
		l.client.close()
	}
}

// tapped wraps the connections of a dial function.
func tapped(dial netopt.DialFunc, tap func(net.Conn, wire) net.Conn, to wire) netopt.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return tap(c, to), nil
	}
}
