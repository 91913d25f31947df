package provisioning_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
)

const (
	groupKey = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw=="
	ownKey   = "icIMXjwja1qYKoscSejYuXU0CWOBN4+SKhfWq13SBnA="

	assigning = `{"operationId":"op-1","status":"assigning"}`
	assigned  = `{"operationId":"op-1","status":"assigned","registrationState":{"registrationId":"reg-0001",` +
		`"assignedHub":"hub1.example.test","deviceId":"dev-1","status":"assigned","substatus":"initialAssignment"}}`
	throttled = `{"errorCode":429001,"trackingId":"t-1","message":"too many"}`
)

// say is one step of a script: the answer or the error to a request.
type say struct {
	status int
	after  time.Duration
	body   string
	err    error
	open   error // Open fails
	hangs  bool  // no answer before ctx ends
}

// script is a Carrier that answers as written, and records the requests.
type script struct {
	mu       sync.Mutex
	says     []say
	requests []string // "register", "poll op-1", "call check"
	bodies   []string
	at       []time.Duration
	began    time.Time
	tokens   []string
	logins   []provisioning.Login
	open     int
}

func newScript(says ...say) *script { return &script{says: says, began: time.Now()} }

func (s *script) next() say {
	if len(s.says) == 0 {
		panic("the script has no further answer")
	}
	x := s.says[0]
	s.says = s.says[1:]
	return x
}

func (s *script) Open(_ context.Context, l *provisioning.Login) (provisioning.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = append(s.tokens, l.Token.Text.Reveal())
	s.logins = append(s.logins, *l)
	if len(s.says) > 0 && s.says[0].open != nil {
		s.at = append(s.at, time.Since(s.began))
		return nil, s.next().open
	}
	s.open++
	return scriptSession{s}, nil
}

type scriptSession struct{ *script }

func (s scriptSession) Exchange(ctx context.Context, r *provisioning.Request) (*provisioning.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := "register"
	switch {
	case r.Call != "":
		text = "call " + r.Call
	case r.Operation != "":
		text = "poll " + r.Operation
	}
	s.requests = append(s.requests, text)
	s.bodies = append(s.bodies, string(r.Body))
	s.at = append(s.at, time.Since(s.began))
	x := s.next()
	if x.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if x.err != nil {
		return nil, x.err
	}
	return &provisioning.Answer{Status: x.status, RetryAfter: x.after, Body: []byte(x.body)}, nil
}

func (s scriptSession) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
}

// sessions returns how many are open. Timers close some.
func (s *script) sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

func lost() error {
	return &transport.Error{Kind: transport.Network, Scope: transport.ScopeConnection, Op: transport.OpRun, Proto: "mqtt",
		Err: errors.New("reset")}
}

func identity(t testing.TB) *provisioning.Identity {
	sign, err := transport.SharedKey(ownKey)
	require.NoError(t, err)
	return &provisioning.Identity{IDScope: "0ne00ABCDEF", RegistrationID: "reg-0001", Sign: sign}
}

// register runs one registration against the script, which must be used up and closed afterwards.
func register(t *testing.T, s *script, o *provisioning.Options) (*provisioning.Assignment, error) {
	t.Helper()
	c, err := provisioning.New(identity(t), s, o)
	require.NoError(t, err)
	a, err := c.Register(t.Context())
	require.Empty(t, s.says, "the script goes on")
	require.Zero(t, s.open, "sessions are open")
	if err != nil {
		require.NotContains(t, err.Error(), "SharedAccessSignature")
		require.NotContains(t, err.Error(), "sig=")
		require.Equal(t, transport.OpRegister, transport.Find(err).Op)
	}
	return a, err
}

func requireRequests(t *testing.T, s *script, want ...string) {
	t.Helper()
	require.Equal(t, strings.Join(want, ", "), strings.Join(s.requests, ", "))
}
