package transporttest

import (
	"context"
	"errors"
	"strings"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// atOnce is the limit for operations that must be immediate.
const atOnce = 100 * time.Millisecond

func dialMakesASession(p *probe) {
	s := p.start()
	info := s.Info()
	if info.Window < 0 {
		p.Errorf("Info.Window is %d", info.Window)
	}
	time.Sleep(time.Second)
	if now := s.Info(); now != info {
		p.Errorf("Info changed from %+v to %+v", info, now)
	}
	select {
	case <-s.ended:
		p.Errorf("Run returned by itself: %v", s.err)
	default:
	}
}

// failedDial dials with ctx and creds, expects a failure, and checks that nothing leaked.
func (p *probe) failedDial(ctx context.Context, creds *transport.Credentials, kinds ...transport.Kind) error {
	p.Helper()
	k := newSink(p)
	before := p.goroutines()
	s, err := p.Transport.Dial(ctx, p.config(creds, k))
	if err == nil { // end it in good order; the failure is reported below
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Run(ended)
	}
	k.close()
	p.requireDialError(err, before, kinds...)
	k.report()
	return err
}

func dialFailsForWrongCredentials(p *probe) {
	p.failedDial(p.Context(), p.WrongCreds, transport.Unauthorized)
	p.start() // the right credentials still work
}

func dialFailsWhenUnreachable(p *probe) {
	p.Hub.Refuse(RefusalUnreachable)
	p.failedDial(p.Context(), p.Creds, transport.Network)
	p.Hub.Refuse(RefusalNone)
	p.start()
}

func dialFailsWhenUnavailable(p *probe) {
	p.Hub.Refuse(RefusalUnavailable)
	p.failedDial(p.Context(), p.Creds, transport.Unavailable, transport.Throttled)
	p.Hub.Refuse(RefusalNone)
	p.start()
}

func dialFailsWithTheTokenSource(p *probe) {
	if p.Creds.Sign == nil && p.Creds.Token == nil {
		p.skip("the credentials make no tokens")
	}
	creds := *p.Creds
	creds.Sign = nil
	creds.Token = func(context.Context) (transport.Token, error) {
		return transport.Token{}, &transport.Error{Kind: transport.ClockUnset, Err: errTokenSource}
	}
	err := p.failedDial(p.Context(), &creds, transport.ClockUnset)
	if !errors.Is(err, errTokenSource) {
		p.Errorf("Dial returned %v, in which the token source's error is not found", err)
	}
}

var errTokenSource = errors.New("no token today")

func dialEndsWithItsContext(p *probe) {
	p.Hub.Refuse(RefusalMute)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(3*time.Second, cancel)
	began := time.Now()
	p.failedDial(ctx, p.Creds)
	if took := time.Since(began) - 3*time.Second; took > atOnce {
		p.Errorf("Dial returned %v after its context had ended", took)
	}
}

func dialFailsWhenTheContextEndedBefore(p *probe) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.failedDial(ctx, p.Creds)
}

func dialFailsManyTimes(p *probe) {
	before := p.goroutines()
	for range 10 {
		p.Hub.Refuse(RefusalUnreachable)
		p.failedDial(p.Context(), p.Creds, transport.Network)
		p.Hub.Refuse(RefusalNone)
		p.failedDial(p.Context(), p.WrongCreds, transport.Unauthorized)
	}
	p.requireGoroutines(before)
}

func dialShowsNoSecret(p *probe) {
	if p.Creds.Sign == nil && p.Creds.Token == nil {
		p.skip("the credentials make no tokens")
	}
	const secret = "VGhpc0lzU2VjcmV0"
	creds := *p.Creds
	creds.Sign = nil
	creds.Token = func(context.Context) (transport.Token, error) {
		text := "SharedAccessSignature sr=" + creds.Resource() + "&sig=" + secret + "&se=1"
		return transport.Token{Text: transport.Hide(text)}, nil
	}
	for _, r := range []Refusal{RefusalNone, RefusalUnavailable, RefusalUnreachable} {
		p.Hub.Refuse(r)
		err := p.failedDial(p.Context(), &creds)
		for ; err != nil; err = errors.Unwrap(err) {
			if strings.Contains(err.Error(), secret) {
				p.Errorf("the error shows the token: %v", err)
			}
		}
	}
	synctest.Wait()
}
