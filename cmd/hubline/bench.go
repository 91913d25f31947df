package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// benching has the flags of hubline bench.
type benching struct {
	*connection
	messages, size, window int
	yes, json              bool

	taken  atomic.Int64 // messages whose sending has begun
	pauses atomic.Int64 // that the service asked for

	mu    sync.Mutex // guards the rest
	waits []time.Duration
	lost  int
	err   error // of the first message that failed
}

func (t *tool) benchCommand() *cobra.Command {
	b := &benching{}
	c := &cobra.Command{
		Use: "bench [flags]", Short: "measure how fast the service takes messages", Long: helpText("bench"),
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return b.run(c.Context()) },
	}
	flags := c.Flags()
	flags.IntVar(&b.messages, "messages", 1000, "number of messages")
	flags.IntVar(&b.size, "size", 256, "bytes of each body")
	flags.IntVar(&b.window, "window", 64, "messages on the way at a time; 1: each waits for the one before")
	flags.BoolVar(&b.yes, "yes", false, "do not ask; a script has to give it")
	flags.BoolVar(&b.json, "json", false, "print the result as JSON")
	b.connection = t.connection(c)
	b.wire = new(meter)
	return c
}

// drainTime is how long messages on the way may take after Ctrl-C.
const drainTime = 5 * time.Second

func (b *benching) run(ctx context.Context) error {
	switch {
	case b.messages < 1 || b.messages > 1e7:
		return usage("-messages: %d is out of range; give 1 to 10000000", b.messages)
	case b.size < len(benchBody) || b.size > transport.MaxMessageSize:
		return usage("-size: %d is out of range; give %d to %d", b.size, len(benchBody), transport.MaxMessageSize)
	case b.window < 1 || b.window > 4096:
		return usage("-window: %d is out of range; give 1 to 4096", b.window)
	}
	const overhead = 1 << 10 // of a message, at most
	session, err := b.prepare(ctx, &device.Options{Window: b.window,
		MaxBytes: max(16<<20, b.window*(b.size+overhead)),
		Trace: &device.Trace{Decision: func(a retrypolicy.Attempt, _ retrypolicy.Decision) {
			if a.Scope != transport.ScopeConnection {
				b.pauses.Add(1)
			}
		}}})
	if err != nil {
		return err
	}
	defer session.Close()
	if err := b.consent(ctx, session); err != nil {
		return err
	}
	begin := time.Now()
	if err := b.open(ctx, session); err != nil {
		return err
	}
	result := benchResult{Size: b.size, Window: b.window, Connect: inMS(time.Since(begin)), Handshake: b.bytes()}
	begin = time.Now()
	bar := newProgress(b.tool, int64(b.messages), func() int64 { return int64(session.Stats().Acknowledged) }, inCount)
	b.send(ctx, session)
	took := time.Since(begin)
	bar.end()
	result.fill(b, session.Stats(), took)
	closeErr := session.Close()
	return firstError(session.cause(), b.print(&result), b.err, closeErr)
}

// consent says what the messages cost, and asks a person whether to send them.
func (b *benching) consent(ctx context.Context, s *session) error {
	if b.yes {
		return nil
	}
	where := "the broker, whose subscribers get them"
	if s.hub {
		const block = 4096 // bytes that count as one message
		where = fmt.Sprintf("the hub, whose back ends get them; they count as %d of its daily quota (8,000 in the free "+
			"tier, where 512 bytes count as one, and 400,000 a day for each unit of S1)", b.messages*((b.size+block-1)/block))
	}
	text := fmt.Sprintf("bench sends %d messages of %d bytes to %s", b.messages, b.size, where)
	if !b.tool.inTerminal || !b.tool.logTerminal {
		return usage("%s; give -yes if that is meant", text)
	}
	fmt.Fprintf(b.tool.log, "%s.\nSend them? [y/N] ", text)
	answer, err := bufio.NewReader(interruptible(ctx, b.tool.in)).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		if errors.Is(err, errNoEnd) {
			return err
		}
		return &exitError{exitFailed, errors.New("nothing was sent")}
	}
	return nil
}

// benchBody is how each body begins.
const benchBody = `{"hubline-bench":"`

// send sends the messages, a window of them at a time.
func (b *benching) send(ctx context.Context, s *session) {
	body := slices.Concat([]byte(benchBody), bytes.Repeat([]byte("x"), max(0, b.size-len(benchBody)-2)), []byte(`"}`))
	alive, cancel := context.WithCancel(s.alive)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		b.say("waiting for what is on the way; Ctrl-C again ends at once")
		time.AfterFunc(drainTime, cancel)
	})()
	var senders sync.WaitGroup
	for range min(b.window, b.messages) {
		senders.Go(func() { // ends with the messages, or with ctx or the client
			for s.ctx.Err() == nil && b.taken.Add(1) <= int64(b.messages) {
				begin := time.Now()
				err := s.Send(alive, &transport.Message{Body: body[:b.size]})
				b.note(time.Since(begin), err)
			}
		})
	}
	senders.Wait()
}

func (b *benching) note(wait time.Duration, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.waits = append(b.waits, wait)
		return
	}
	if b.lost++; b.err == nil {
		b.err = err
	}
}

// traffic are bytes of the connections, TLS included.
type traffic struct {
	Out int64 `json:"out"`
	In  int64 `json:"in"`
}

func (b *benching) bytes() traffic { return traffic{b.wire.out.Load(), b.wire.in.Load()} }

// benchResult is what was measured. Times are in milliseconds.
type benchResult struct {
	Acknowledged int     `json:"acknowledged"`
	Failed       int     `json:"failed"`
	Size         int     `json:"size"`
	Window       int     `json:"window"`
	Connect      float64 `json:"connectMs"`
	Took         float64 `json:"tookMs"`
	Rate         float64 `json:"messagesPerSecond"`
	Latency      struct {
		Median float64 `json:"p50Ms"`
		P90    float64 `json:"p90Ms"`
		P99    float64 `json:"p99Ms"`
		Max    float64 `json:"maxMs"`
	} `json:"latency"`
	Handshake  traffic `json:"handshakeBytes"`
	Wire       traffic `json:"bytes"` // without the handshake
	Resent     uint64  `json:"sentAgain"`
	Reconnects uint64  `json:"reconnects"`
	Pauses     int64   `json:"pauses"`
}

const benchDigit = 10 * time.Microsecond

func inMS(d time.Duration) float64 { return float64(d.Round(benchDigit)) / float64(time.Millisecond) }
func fromMS(ms float64) time.Duration {
	return time.Duration(ms * float64(time.Millisecond)).Round(benchDigit)
}

func (r *benchResult) fill(b *benching, s device.Stats, took time.Duration) {
	all := b.bytes()
	r.Wire = traffic{all.Out - r.Handshake.Out, all.In - r.Handshake.In}
	r.Acknowledged, r.Failed, r.Took = len(b.waits), b.lost, inMS(took)
	r.Rate = float64(len(b.waits)) / max(took.Seconds(), 1e-6)
	r.Resent, r.Reconnects, r.Pauses = s.Resent, max(1, s.Connections)-1, b.pauses.Load()
	if len(b.waits) == 0 {
		return
	}
	slices.Sort(b.waits)
	at := func(part float64) float64 { return inMS(b.waits[int(part*float64(len(b.waits)-1)+0.5)]) }
	l := &r.Latency
	l.Median, l.P90, l.P99, l.Max = at(0.5), at(0.9), at(0.99), at(1)
}

func (b *benching) print(r *benchResult) error {
	if b.json {
		return b.tool.json(r)
	}
	each := float64(max(1, r.Acknowledged))
	p := b.tool.palette()
	for _, row := range [][2]string{
		{"messages", fmt.Sprintf("%d of %d bytes acknowledged, %d on the way at a time", r.Acknowledged, r.Size, r.Window)},
		{"rate", fmt.Sprintf("%.0f a second, %s/s of bodies", r.Rate, inBytes(int64(r.Rate*float64(r.Size))))},
		{"latency", fmt.Sprintf("median %v, 90 %% within %v, 99 %% within %v, longest %v", fromMS(r.Latency.Median),
			fromMS(r.Latency.P90), fromMS(r.Latency.P99), fromMS(r.Latency.Max))},
		{"on the wire", fmt.Sprintf("%.0f bytes out and %.0f in for each message; %d and %d to connect, in %v",
			float64(r.Wire.Out)/each, float64(r.Wire.In)/each, r.Handshake.Out, r.Handshake.In, fromMS(r.Connect))},
		{"retries", fmt.Sprintf("%d sent again, %d reconnects, %d pauses that the service asked for", r.Resent, r.Reconnects,
			r.Pauses)},
	} {
		if _, err := fmt.Fprintf(b.tool.out, "%s  %s\n", p.paint(cyan, fmt.Sprintf("%-11s", row[0])), row[1]); err != nil {
			return err
		}
	}
	return nil
}
