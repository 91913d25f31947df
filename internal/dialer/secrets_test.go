package dialer_test

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/amqp/goamqp"
	hubhttp "github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
	"github.com/hubline-iot/hubline/transport/mqtt/paho"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// errURL has a secret in its text.
var errURL error = &url.Error{Op: "Get", URL: "https://h/?code=hunter2x", Err: io.EOF}

// requireNoSecret checks an error that errURL caused.
func requireNoSecret(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, io.EOF)
	require.NotContains(t, err.Error(), "hunter2x")
}

// The URL in the error of a token source may have a key in it. No error shows it.
func TestErrorsOfTokenSourcesShowNoSecrets(t *testing.T) {
	for name, err := range map[string]error{
		"plain": errURL, "wrapped": fmt.Errorf("tokens: %w", errURL),
		"with a Kind":         &transport.Error{Kind: transport.Forbidden, Err: errURL},
		"wrapped with a Kind": fmt.Errorf("%w: %w", errURL, &transport.Error{Kind: transport.Forbidden}),
	} {
		token := &transport.Credentials{Host: "h", DeviceID: "d", ModuleID: "m",
			Token: func(context.Context) (transport.Token, error) { return transport.Token{}, err }}
		sign := &transport.Credentials{Host: "h", DeviceID: "d", ModuleID: "m",
			Sign: func(context.Context, []byte) ([]byte, error) { return nil, err }}
		for _, creds := range []*transport.Credentials{token, sign} {
			for stack, tr := range map[string]transport.Transport{"mqtt": mqtt.New(nil), "paho": paho.New(nil),
				"amqp": amqp.New(nil), "goamqp": goamqp.New(nil), "http": hubhttp.New(nil),
				"mqtt 5": mqtt.New(&mqtt.Options{Dialect: &mqtt.Topics{Telemetry: "up"}, Protocol: mqtt.MQTT5(nil)})} {
				t.Run(name+" over "+stack, func(t *testing.T) {
					_, err := tr.Dial(t.Context(), &transport.Config{Creds: creds})
					requireNoSecret(t, err)
				})
			}
			t.Run(name+" in a call", func(t *testing.T) {
				v, err := edge.NewInvoker(creds, &edge.InvokerOptions{RetryPolicy: retrypolicy.NoRetry{}})
				require.NoError(t, err)
				defer v.Close()
				_, err = v.Invoke(t.Context(), edge.Target{DeviceID: "d", ModuleID: "x"}, edge.Method{Name: "m"})
				requireNoSecret(t, err)
			})
			t.Run(name+" in an upload", func(t *testing.T) {
				device := *creds
				device.ModuleID = ""
				u, err := fileupload.New(&device, &fileupload.Options{RetryPolicy: retrypolicy.NoRetry{}})
				require.NoError(t, err)
				defer u.Close()
				_, err = u.Upload(t.Context(), "a", strings.NewReader("a"), 1)
				requireNoSecret(t, err)
			})
		}
	}
}

// The same holds for a renewal in place over MQTT 5, with the token and with callbacks of its own.
func TestErrorsOfRenewalsShowNoSecrets(t *testing.T) {
	for name, own := range map[string]bool{"token": false, "Auth.Start": true} {
		t.Run(name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				h := hubfixture.NewPlain(t, testbroker.BrokerOptions{}, false)
				creds, asked := h.CredsWith(t, ""), 0
				signed := *creds
				source := func(ctx context.Context) (transport.Token, error) {
					if asked++; asked > 1 {
						return transport.Token{}, errURL
					}
					return signed.NewToken(ctx)
				}
				auth := &engine.Auth{Method: testbroker.AuthMethod}
				if own {
					auth.Start = func(ctx context.Context) ([]byte, time.Time, error) {
						token, err := source(ctx)
						return []byte(token.Text.Reveal()), token.Expires, err
					}
				} else {
					creds.Sign, creds.Token = nil, source
				}
				tr := mqtt.New(&mqtt.Options{Dialect: hubfixture.Topics(false),
					Protocol: mqtt.MQTT5(&mqtt.MQTT5Options{Auth: auth}),
					Network:  netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)}})
				sink := new(hubfixture.Sink)
				ctx, cancel := context.WithCancel(t.Context())
				s, err := tr.Dial(ctx, &transport.Config{Creds: creds, Window: 4, Queue: 4, Sink: sink})
				require.NoError(t, err)
				ended := sink.Run(t, ctx, s, cancel)
				s.Do(&transport.Request{ID: 5, Op: transport.OpRenew})
				synctest.Wait()
				reply, _ := sink.ReplyTo(5)
				requireNoSecret(t, reply.Err)
				cancel()
				<-ended
			})
		})
	}
}
