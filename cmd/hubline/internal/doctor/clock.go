package doctor

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
)

const stamp = "2006-01-02 15:04:05 MST"

// runClock checks that the clock is not obviously unset.
func runClock(_ context.Context, p *Probe, _ subject) []Row {
	now := p.now()
	if p.implausible() {
		return wrong(transport.ClockUnset, now.UTC().Format(stamp),
			"the clock is not set: start NTP or set it; "+errfilter.OfKind(transport.ClockUnset).Hint())
	}
	return fine(now.UTC().Format(stamp))
}

func (p *Probe) implausible() bool {
	c := p.Target.Creds
	if c == nil {
		c = &transport.Credentials{}
	}
	return c.Implausible(p.now())
}

// Limits of the difference between the clocks. A token lives for an hour by default.
const (
	skewWarn = time.Minute
	skewBad  = 5 * time.Minute
)

// runSkew compares the clock with the hub's, which its answers over HTTPS tell. Dates are to the
// second. The dates of the certificate are not verified here, because that needs the clock; name
// and chain are, so that no other server's date counts.
func runSkew(ctx context.Context, p *Probe, s subject) []Row {
	ctx, cancel := p.limit(ctx)
	defer cancel()
	conn, state, err := p.handshake(ctx, s.site)
	if err != nil && !p.examined(s.site) {
		return untold("no answer at " + s.site.address + ": " + err.Error())
	}
	if err != nil && p.failed([]string{"tls"}, s) != "" {
		return notTried(label("tls", s.site.name))
	}
	if err != nil {
		return bad(err)
	}
	if !p.identified(s.site, state) {
		_ = conn.Close() // nothing was asked
		if !p.examined(s.site) {
			return untold(s.site.address + " is not the hub")
		}
		return notTried(label("tls", s.site.name))
	}
	before := p.now()
	response, err := ask(ctx, conn, http.MethodHead, s.site.host)
	if err != nil { // the port may speak another protocol than HTTP, which is no fault of the clock
		return untold("no answer over HTTP at " + s.site.address + ": " + err.Error())
	}
	if substituted(response.StatusCode) {
		return untold("a proxy or portal answers in its place, with status " + strconv.Itoa(response.StatusCode))
	}
	middle := before.Add(p.now().Sub(before) / 2)
	date, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return untold("the hub's answer has no date")
	}
	skew := middle.Sub(date)
	if skew.Abs() <= 2*time.Second { // dates have whole seconds
		return fine("within 2s")
	}
	figure, help := took(skew)+" ahead", "set the clock (NTP): by it, valid certificates seem to have expired, and "+
		"messages are dated in the future"
	if skew < 0 {
		figure, help = took(-skew)+" behind", "set the clock (NTP): tokens are dated by it, and the hub refuses those that "+
			"have expired by its own"
	}
	switch {
	case skew.Abs() >= skewBad:
		return wrong(transport.ClockUnset, figure, help)
	case skew.Abs() >= skewWarn:
		return warn(figure, help)
	}
	return fine(figure)
}

// untold returns the row of a hub that does not tell its time.
func untold(why string) []Row {
	return []Row{{Mark: Skipped, Figure: "not known", Hint: "the hub tells its time over HTTPS alone; " + why}}
}
