package main

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/internal/memconn"
)

// BenchmarkSend measures messages of 100 bytes from the call to the acknowledgement, with 128 in
// flight.
func BenchmarkSend(b *testing.B) {
	const window, size = 128, 100
	for _, p := range Protocols {
		for _, name := range p.Peers {
			for _, secure := range []bool{false, true} {
				way := p.Name + "/" + name
				if secure {
					way += "+TLS"
				}
				for _, s := range p.Senders {
					b.Run(way+"/"+strings.NewReplacer(" ", "-", ",", "").Replace(s.Name), func(b *testing.B) {
						sender, err := s.Open(openPeer(b, p, name, secure), Load{Window: window, Size: size})
						if err != nil {
							b.Fatal(err)
						}
						defer sender.Close()
						if err := sender.Send(b.Context(), 2*window); err != nil {
							b.Fatal(err)
						}
						b.ReportAllocs()
						b.ResetTimer()
						if err := sender.Send(b.Context(), b.N); err != nil {
							b.Fatal(err)
						}
					})
				}
			}
		}
	}
}

// openPeer starts a peer for t. If the peer is not installed it skips t, or fails t where all peers
// are required.
func openPeer(t testing.TB, protocol *Protocol, name string, secure bool) *Peer {
	t.Helper()
	p, err := protocol.OpenPeer(context.Background(), name, secure) // it ends with Close, after t.Context
	if errors.Is(err, ErrMissing) && os.Getenv("HUBLINE_REQUIRE_PEERS") != "1" {
		t.Skipf("SKIPPED: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// All senders do the same work: the same number of messages of the same size, each once, with at
// most the window in flight.
func TestSendersSendTheSame(t *testing.T) {
	const size, n = 100, 500
	topics := map[*Protocol]string{MQTT: "devices/dev-0/messages/events/", AMQP: "/devices/dev-0/messages/events"}
	for _, p := range []*Protocol{MQTT, AMQP} {
		for _, s := range p.Senders {
			for _, secure := range []bool{false, true} {
				for _, window := range []int{1, 3, 128, 1024} {
					hub, a, err := newHub(p, 1, secure, keepAll)
					if err != nil {
						t.Fatal(err)
					}
					defer hub.Close()
					sender, err := s.Open(&Peer{access: *a}, Load{Window: window, Size: size})
					if err != nil {
						t.Fatal(s.Name, secure, window, err)
					}
					for range 2 {
						if err := sender.Send(t.Context(), n); err != nil {
							t.Fatal(s.Name, secure, window, err)
						}
					}
					sender.Close()
					log := hub.Messages()
					if len(log) != 2*n {
						t.Fatalf("%s, TLS %v, window %d: the hub has %d messages of %d", s.Name, secure, window, len(log), 2*n)
					}
					for _, m := range log {
						topic := topics[p]
						if p == MQTT && m.MessageID != "" { // of a sender with ids
							topic += "%24.mid=" + m.MessageID
						}
						if m.QoS != 1 || m.Dup || len(m.Body) != size || m.Topic != topic {
							t.Fatalf("%s, TLS %v, window %d: the hub has %+v", s.Name, secure, window, m)
						}
					}
				}
			}
		}
	}
}

// If a peer loses a message or its PUBACK the limit fails. It neither waits nor counts on.
func TestTheLimitNoticesWhatIsNoPUBACK(t *testing.T) {
	for text, reply := range map[string]string{
		"where a PUBACK should be":    "\x40\x02\x00\x01\xD0\x00\x00\x00",
		"3 PUBACKs and 0 bytes for 2": strings.Repeat("\x40\x02\x00\x01", 3),
		"EOF":                         "\x40\x02\x00\x01",
	} {
		near, far := memconn.Pair("near", "far")
		if _, err := far.Write([]byte(reply)); err != nil {
			t.Fatal(err)
		}
		_ = far.CloseWrite()
		err := newLimit(near, "topic", nil, 2, 10).Send(t.Context(), 2)
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
		_, _ = near.Close(), far.Close()
	}
}

// Every peer accepts every sender's messages. From Enqueue to the acknowledgement Hubline allocates
// nothing per message over mqtt, and hardly more than the raw library over AMQP.
func TestPeers(t *testing.T) {
	for _, p := range Protocols {
		for _, name := range p.Peers {
			t.Run(p.Name+"/"+name, func(t *testing.T) {
				for _, secure := range []bool{false, true} {
					peer := openPeer(t, p, name, secure)
					comparePeer(t, p, peer, secure, 128, 10_000)
					comparePeer(t, p, peer, secure, 1, 1_000)
				}
			})
		}
	}
}

// comparePeer lets each sender send n messages and checks their allocations.
func comparePeer(t *testing.T, p *Protocol, peer *Peer, secure bool, window, n int) {
	raw := 0.0
	for i, s := range p.Senders {
		sender, err := s.Open(peer, Load{Window: window, Size: 100})
		if err != nil {
			t.Fatal(s.Name, secure, err)
		}
		if err := sender.Send(t.Context(), n); err != nil { // allocates one-time state
			t.Fatal(s.Name, secure, err)
		}
		f, err := Measure(t.Context(), sender, n)
		sender.Close()
		if err != nil {
			t.Fatal(s.Name, secure, err)
		}
		if i == 0 {
			raw = f.Allocs
		}
		most := math.Inf(1)
		switch {
		case p == AMQP:
			most = raw + MoreAllocs
		case s.Name == "over mqtt" && !secure && window > 1: // crypto/tls allocates for each read from the socket
			most = 0.01 // background work of the runtime
		}
		if f.Allocs > most {
			t.Errorf("%s, TLS %v, window %d: %.3f allocations for a message, at most %.2f are allowed", s.Name, secure, window,
				f.Allocs, most)
		}
	}
}

// The bare responder answers and allocates nothing per message; neither does the limit.
func TestBareAllocatesNothing(t *testing.T) {
	listener, a, err := listenBare(MQTT, false)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	const window, size = 16, 100
	s, err := Limit(&Peer{access: *a}, Load{Window: window, Size: size})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if allocs := testing.AllocsPerRun(20, func() {
		if err := s.Send(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
	}); allocs > 5 {
		t.Errorf("%v allocations for 1000 messages", allocs)
	}
}

func TestBareAnswersPings(t *testing.T) {
	near, far := memconn.Pair("near", "far")
	ended := make(chan error, 1)
	go func() { ended <- answerMQTT(far) }() // ends with DISCONNECT
	for _, packet := range []string{"\xC0\x00", "\x30\x03\x00\x01t", "\xE0\x00"} {
		if _, err := near.Write([]byte(packet)); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	_ = far.CloseWrite()
	if answer, err := io.ReadAll(near); string(answer) != "\xD0\x00" || err != nil {
		t.Errorf("% x, %v in answer to PINGREQ and a PUBLISH with QoS 0", answer, err)
	}
}

// With default message ids, messages take less CPU time than with the raw library, whatever their
// size. Those sent one at a time take about as much, since most of it goes to waking both sides:
// the ratio varies by a third from run to run. The least of three rounds counts.
func TestAMessageTakesLessCPUThanWithTheRawLibrary(t *testing.T) {
	for _, p := range []struct {
		*Protocol
		raw, ours Contender
	}{{MQTT, growingMQTT[0], growingMQTT[len(growingMQTT)-1]}, {AMQP, growingAMQP[0], growingAMQP[len(growingAMQP)-1]}} {
		peer := openPeer(t, p.Protocol, "bare", false)
		for _, l := range []struct {
			Load
			n    int
			most float64 // of the raw library's CPU time
		}{
			{Load{Window: 1, Size: 100}, 1000, 1.4}, {Load{Window: 128, Size: 100}, 10_000, 0.3},
			{Load{Window: 128, Size: 100, Properties: 30}, 3000, 0.8},
			{Load{Window: 1, Size: 20_000}, 500, 1.4}, {Load{Window: 128, Size: 20_000}, 2000, 0.7},
			{Load{Window: 1, Size: 255 << 10}, 100, 1.4}, {Load{Window: 128, Size: 255 << 10}, 500, 0.9},
		} {
			least := [2]float64{math.Inf(1), math.Inf(1)}
			for range 3 {
				for i, c := range []Contender{p.raw, p.ours} {
					sender, err := c.Open(peer, l.Load)
					if err != nil {
						t.Fatal(c.Name, err)
					}
					f, err := Measure(t.Context(), sender, l.n)
					sender.Close()
					if err != nil {
						t.Fatal(c.Name, err)
					}
					least[i] = min(least[i], f.CPU)
				}
			}
			if ratio := least[1] / least[0]; ratio > l.most {
				t.Errorf("%s, %+v: %.2f times the CPU time of %s, want at most %.2f", p.Name, l.Load, ratio, p.raw.Name, l.most)
			} else {
				t.Logf("%s, %+v: %.2f", p.Name, l.Load, ratio)
			}
		}
	}
}
