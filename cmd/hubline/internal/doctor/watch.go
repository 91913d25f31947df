package doctor

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// runSecondDevice watches a connection. A second program with the same id ends it when it
// reconnects, and the next one too. A single loss may be the network's.
func runSecondDevice(ctx context.Context, p *Probe, s subject) []Row {
	row, once := p.watch(ctx, s)
	if once == nil {
		return []Row{row}
	}
	row, again := p.watch(ctx, s)
	const alone = "the network or the service ended it, or another program with the same device id: watch longer (-hold); "
	switch {
	case again != nil:
		return wrong(transport.Conflict, "lost after "+took(once.after)+", then "+took(again.after),
			device.SuspectSecondDevice.String()+": end it, or give it its own id; "+again.err.Error())
	case row.Mark == OK:
		return warn("lost after "+took(once.after)+", then kept for "+took(p.Options.Hold), alone+once.err.Error())
	}
	row.Figure = "lost after " + took(once.after) + ", then " + row.Figure
	return []Row{row}
}

// loss is the end of a connection that was watched.
type loss struct {
	after time.Duration
	err   error
}

// watch keeps a connection for Options.Hold and uses it then, because a connection that is quiet
// may be dead. It returns a row, or the loss of the connection.
func (p *Probe) watch(ctx context.Context, s subject) (Row, *loss) {
	t, creds, err := p.Target.Open(s.protocol)
	if err != nil {
		return bad(err)[0], nil
	}
	c, err := p.open(ctx, creds, t)
	switch {
	case isEnded(err):
		return Row{}, &loss{0, err}
	case err != nil:
		return p.unopened(ctx, err, s)[0], nil
	}
	defer c.Close()
	begin := time.Now()
	timer := time.NewTimer(p.Options.Hold)
	defer timer.Stop()
	select {
	case <-timer.C:
		return p.useHeld(ctx, c), nil
	case <-ctx.Done():
		return interrupted, nil
	case <-c.lost:
		return Row{}, &loss{time.Since(begin), c.last(nil)}
	}
}

// use shows that a connection which was quiet still works: by a message or, with NoMessages, by a
// read of the twin. A broker has no twin.
func (p *Probe) use(ctx context.Context, c *client) Row {
	switch {
	case !p.Options.NoMessages:
		row, _ := p.message(ctx, c)
		return row
	case p.Target.URL != nil:
		return Row{Mark: Skipped, Hint: "no loss was seen; whether the connection works at the end was not tried, because " +
			"of -no-messages"}
	}
	ctx, cancel := p.limit(ctx)
	defer cancel()
	if _, err := c.GetTwin(ctx); err != nil {
		return bad(c.last(err))[0]
	}
	return Row{Mark: OK}
}

// useHeld uses a connection that was kept for Options.Hold.
func (p *Probe) useHeld(ctx context.Context, c *client) Row {
	kept := "connection kept for " + took(p.Options.Hold)
	row := p.use(ctx, c)
	switch {
	case row.Mark == Skipped:
		row.Figure = kept
	case row.Mark == OK:
		return fine(kept)[0]
	case row.Kind == transport.Timeout || row.Kind == transport.Network:
		row.Figure = "dead after " + took(p.Options.Hold)
		row.Hint = "the connection was not lost, and carries nothing: a box on the way forgot it, or the service does not " +
			"answer; " + row.Hint
	default: // an answer
		row.Figure = "kept for " + took(p.Options.Hold) + ", then " + row.Figure
	}
	return row
}

// keepAliveMargin is by how much the keep-alive of a connection that is left quiet is longer than
// that time.
const keepAliveMargin = 2 * time.Minute

// runIdle leaves a connection without traffic, and uses it then. Boxes on the way forget quiet
// connections after some minutes, without a word to either end.
func runIdle(ctx context.Context, p *Probe, s subject) []Row {
	if s.protocol == nil {
		return []Row{{Mark: Skipped, Figure: "not tried", Hint: "MQTT over TCP alone is left quiet, and " +
			"it is not among the ones here"}}
	}
	idle := p.Options.Idle
	t, creds, err := p.Target.Quiet((idle + keepAliveMargin).Truncate(time.Second)) // MQTT has whole seconds
	if err != nil {
		return bad(err)
	}
	c, err := p.open(ctx, creds, t)
	if err != nil {
		return p.unopened(ctx, err, s)
	}
	defer c.Close()
	timer := time.NewTimer(idle)
	defer timer.Stop()
	var row Row
	select {
	case <-timer.C:
		row = p.use(ctx, c)
	case <-c.lost:
		row = bad(c.last(nil))[0]
	case <-ctx.Done():
		return []Row{interrupted}
	}
	switch row.Mark {
	case Skipped:
		row.Figure = "not lost in " + took(idle)
		return []Row{row}
	case Bad:
		return wrong(transport.Network, "dead after "+took(idle), "a box on the way forgets connections that are quiet for "+
			"less than that; the device's keep-alive (60s by default) must be shorter than its time-out; "+row.Hint)
	default:
		return fine("alive after " + took(idle))
	}
}
