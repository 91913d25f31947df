package provisioning_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Errors and events show no secret that an error or a panic of a callback has in its text.
func TestErrorsOfCallbacksShowNoSecret(t *testing.T) {
	const secret = "VGhpc0lzU2VjcmV0"
	plain := errors.New("GET https://vault.example/?sig=" + secret + ": 403")
	withKind := &transport.Error{Kind: transport.Invalid, Err: plain}
	for name, run := range map[string]func(*testing.T, *provisioning.Options, error) error{
		"Sign": func(t *testing.T, o *provisioning.Options, err error) error {
			id := identity(t)
			id.Sign = func(context.Context, []byte) ([]byte, error) { return nil, err }
			return registerAs(t, id, newScript(), o)
		},
		"Open": func(t *testing.T, o *provisioning.Options, err error) error {
			return registerAs(t, identity(t), newScript(say{open: err}), o)
		},
		"Exchange": func(t *testing.T, o *provisioning.Options, err error) error {
			return registerAs(t, identity(t), newScript(say{err: err}), o)
		},
		"TPM.PublicKeys": func(t *testing.T, o *provisioning.Options, err error) error {
			id := identity(t)
			id.Sign, id.TPM = nil, &fakeTPM{fails: err}
			return registerAs(t, id, &tpmScript{script: newScript()}, o)
		},
		"TPM.Activate": func(t *testing.T, o *provisioning.Options, err error) error {
			tpm := newFakeTPM()
			s := &tpmScript{script: newScript(), challenges: []string{"key-1"}, onOpen: func() { tpm.fails = err }}
			id := identity(t)
			id.Sign, id.TPM = nil, tpm
			return registerAs(t, id, s, o)
		},
		"Policy": func(t *testing.T, o *provisioning.Options, err error) error {
			o.Rand = func() uint64 { panic(err) }
			return registerAs(t, identity(t), newScript(), o)
		},
	} {
		for _, cause := range []error{plain, withKind, wrapping{withKind}} {
			testkit.In2030(t, func(t *testing.T) {
				var steps []provisioning.Event
				o := events(&steps)
				o.Policy = retrypolicy.NoRetry{}
				err := run(t, o, cause)
				require.ErrorIs(t, err, plain, name)
				require.NotContains(t, err.Error(), secret, name)
				require.Contains(t, err.Error(), "sig=(hidden)", name)
				for _, step := range steps {
					require.NotContains(t, step.String(), secret, name)
				}
			})
		}
		testkit.In2030(t, func(t *testing.T) { // an error whose methods panic
			err := run(t, &provisioning.Options{Policy: retrypolicy.NoRetry{}}, (*os.PathError)(nil))
			require.ErrorContains(t, err, "an error whose Error method panics", name)
			require.NotErrorIs(t, err, plain)
		})
	}

	testkit.In2030(t, func(t *testing.T) {
		var steps []provisioning.Event
		c := caller(t, newScript(say{status: 200, body: assigned}), events(&steps))
		c.Before(func(context.Context) error { return plain })
		_, err := c.Register(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, steps[1].Err, plain)
		require.NotContains(t, steps[1].String(), secret)
	})
	testkit.In2030(t, func(t *testing.T) {
		var steps []provisioning.Event
		c := caller(t, newScript(say{status: 200, body: assigned}), events(&steps))
		c.Before(func(context.Context) error { return (*os.PathError)(nil) })
		_, err := c.Register(t.Context())
		require.NoError(t, err)
		require.NotErrorIs(t, steps[1].Err, plain)
	})
}

type wrapping struct{ error }

func (w wrapping) Error() string { return "vault: " + w.error.Error() }
func (w wrapping) Unwrap() error { return w.error }

func registerAs(t *testing.T, id *provisioning.Identity, c provisioning.Carrier, o *provisioning.Options) error {
	client, err := provisioning.New(id, c, o)
	require.NoError(t, err)
	_, err = client.Register(t.Context())
	return err
}

// A refusal with more text than an error shows keeps its code.
func TestALongRefusalIsKnownByItsCode(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		long := strings.Repeat("x", 1000)
		s := newScript(say{status: 404, body: `{"errorCode":404201,"message":"` + long + `","trackingId":"` + long + `"}`},
			say{status: 200, body: assigned})
		_, err := register(t, s, &provisioning.Options{AwaitEnrollment: true})
		require.NoError(t, err)
	})
}
