package provisioning_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

func state(more string) string {
	return `{"operationId":"o","status":"assigned","registrationState":{"assignedHub":"h.example.test","deviceId":"d"` +
		more + `}}`
}

func chainOf(n int) string {
	return `,"issuedCertificateChain":[` + strings.TrimSuffix(strings.Repeat(`"AQID",`, n), ",") + `]`
}

// Answers at their limits are taken; those beyond are violations, which another answer may mend.
func TestLimitsOfAnswers(t *testing.T) {
	body := state(`,"payload":""`)
	full := strings.Replace(body, `"payload":""`,
		`"payload":"`+strings.Repeat("p", provisioning.MaxAnswer-len(body))+`"`, 1)
	nested := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for name, row := range map[string]struct {
		taken, refused say
	}{
		"body":      {say{status: 200, body: full}, say{status: 200, body: full + " "}},
		"operation": {say{status: 202, body: operation(1024)}, say{status: 202, body: operation(1025)}},
		"chain":     {say{status: 200, body: state(chainOf(16))}, say{status: 200, body: state(chainOf(17))}},
		"thousands of certificates": {say{status: 200, body: state(chainOf(1))},
			say{status: 200, body: state(chainOf(10_000))}},
		"nesting": {say{status: 200, body: state(`,"payload":[[[]]]`)},
			say{status: 200, body: state(`,"payload":` + nested)}},
		"profile": {say{status: 200, body: state(`,"connectionProfile":"classic"`)}, say{status: 200, body: "["}},
		"host":    {say{status: 200, body: state("")}, say{status: 200, body: state(`,"assignedHub":"h.example.test:443"`)}},
		"host that is a path": {say{status: 200, body: state("")},
			say{status: 200, body: state(`,"assignedHub":"h.example.test/x"`)}},
		"host with a line end": {say{status: 200, body: state("")},
			say{status: 200, body: state(`,"assignedHub":"h.example.test\r\nX: y"`)}},
		"device": {say{status: 200, body: state("")}, say{status: 200, body: state(`,"deviceId":"a/b"`)}},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				var failures []error
				o := &provisioning.Options{OnEvent: func(e provisioning.Event) {
					if e.Step == provisioning.StepRetrying {
						failures = append(failures, e.Err)
					}
				}}
				says := []say{row.taken}
				if row.taken.status == 202 {
					says = append(says, say{status: 200, body: assigned})
				}
				_, err := register(t, newScript(says...), o)
				require.NoError(t, err)
				require.Empty(t, failures)
				_, err = register(t, newScript(row.refused, say{status: 200, body: assigned}), o)
				require.NoError(t, err)
				require.Len(t, failures, 1)
				require.ErrorIs(t, failures[0], transport.Protocol)
				require.ErrorIs(t, failures[0], transport.ErrViolation)
				require.Less(t, len(failures[0].Error()), 400)
			})
		})
	}
}

func operation(n int) string {
	return `{"operationId":"` + strings.Repeat("o", n) + `","status":"assigning"}`
}

// A service that echoes the request, as proxies do, must not put the token into the error.
func TestTextsOfAnAssignmentAreScrubbedAndBounded(t *testing.T) {
	const echoed = `Authorization: Bearer 4Z7Kv0Qw1x5Tn9 `
	const key = "Xk8bQ2n5v7y9C1e3g5J7l9N1p3R5t7V9x1Z3b5D7f9A="
	for name, row := range map[string]struct{ member, want string }{
		"hub":      {`"assignedHub":"` + echoed + strings.Repeat("x", 90<<10) + `"`, "names no hub: "},
		"device":   {`"deviceId":"` + echoed + strings.Repeat("x", 90<<10) + `"`, "names no device: "},
		"dots":     {`"assignedHub":"..."`, `names no hub: "..."`},
		"no hub":   {`"assignedHub":""`, `names no hub: ""`},
		"cut key":  {`"deviceId":"/` + strings.Repeat(" ", 60) + key + `"`, "names no device: "},
		"profile":  {`"connectionProfile":"` + echoed + strings.Repeat("x", 90<<10) + `"`, "connection profile "},
		"cut word": {`"connectionProfile":"/` + strings.Repeat(" ", 60) + key + `"`, "connection profile "},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				s := newScript(say{status: 200, body: state("," + row.member)})
				_, err := register(t, s, &provisioning.Options{Policy: retrypolicy.NoRetry{}})
				require.ErrorContains(t, err, row.want)
				require.NotContains(t, err.Error(), "4Z7Kv0Qw1x5Tn9")
				require.NotContains(t, err.Error(), key[:16])
				require.Less(t, len(err.Error()), 400)
			})
		})
	}
}

// Of two members with the same name the last one counts, as for encoding/json.
func TestTheLastOfTwoMembersCounts(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		a, err := register(t, newScript(say{status: 200, body: state(`,"deviceId":"last"`)}), nil)
		require.NoError(t, err)
		require.Equal(t, "last", a.DeviceID)
	})
}

// The keys take turns: after an answer, a refusal leads back to the first one.
func TestTheKeysTakeTurns(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		id := identity(t)
		second, err := provisioning.GroupKey(groupKey, "other")
		require.NoError(t, err)
		id.SecondSign = second
		refused := say{status: 401, body: `{"errorCode":401002}`}
		s := newScript(refused, say{status: 202, body: assigning}, refused, say{status: 200, body: assigned})
		c, err := provisioning.New(id, s, nil)
		require.NoError(t, err)
		a, err := c.Register(t.Context())
		require.NoError(t, err)
		require.False(t, a.SecondKey)
		requireRequests(t, s, "register", "register", "poll op-1", "poll op-1")
	})
}

// A service that accepts each key and then refuses it is polled at the policy's pace.
func TestKeysThatAreAcceptedAndRefusedInTurnAreForThePolicy(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		id := identity(t)
		id.SecondSign = id.Sign
		s := newScript()
		for range 10 {
			s.says = append(s.says, say{status: 202, body: assigning}, say{status: 401, body: `{"errorCode":401002}`})
		}
		c, err := provisioning.New(id, s, &provisioning.Options{PollInterval: 20 * time.Millisecond,
			Policy: retrypolicy.MaxAttempts{Total: 4, Policy: retrypolicy.Fixed{Delay: time.Minute}}})
		require.NoError(t, err)
		_, err = c.Register(t.Context())
		require.ErrorIs(t, err, transport.RetryExpired)
		require.ErrorIs(t, err, transport.Unauthorized)
		require.Len(t, s.tokens, 8, "connections: one for each key in each attempt")
		require.GreaterOrEqual(t, s.at[len(s.at)-1], 3*time.Minute)
	})
}

// A token that an unset clock has signed is not sent again.
func TestARefusedTokenIsReplaced(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		id := identity(t)
		id.Now = func() time.Time { return time.Now().AddDate(-20, 0, 0) }
		s := newScript(say{status: 401, body: `{"errorCode":401002}`}, say{status: 200, body: assigned})
		c, err := provisioning.New(id, s, nil)
		require.NoError(t, err)
		_, err = c.Register(t.Context())
		require.NoError(t, err)
		require.Len(t, s.tokens, 2)
		require.NotEqual(t, s.tokens[0], s.tokens[1])
	})
}

func TestAConflictOfAPollRegistersAgain(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{status: 202, body: assigning}, say{status: 409, body: `{"errorCode":409001}`},
			say{status: 200, body: assigned})
		_, err := register(t, s, nil)
		require.NoError(t, err)
		requireRequests(t, s, "register", "poll op-1", "register")
	})
}

// A policy of the caller decides about throttling, too.
func TestAPolicyOfTheCallerIsNotPaced(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		s := newScript(say{status: 429, body: throttled}, say{status: 200, body: assigned})
		_, err := register(t, s, &provisioning.Options{Policy: retrypolicy.Fixed{Delay: time.Second}})
		require.NoError(t, err)
		require.LessOrEqual(t, s.at[1], 1500*time.Millisecond)
	})
}
