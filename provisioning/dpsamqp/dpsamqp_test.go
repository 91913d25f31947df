package dpsamqp_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsamqp"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func TestFrames(t *testing.T) {
	p := &peer{replies: []func(*line){
		func(l *line) {
			l.accept()
			l.answer(assigning, wire.Map{{Key: "Retry-After", Value: int32(3)}, {Key: "retry-after", Value: int32(3)}})
		},
		func(l *line) {
			l.accept()
			l.answer(assigning, nil)
		},
		done,
	}}
	with(t, p, func(t *testing.T, o *netopt.Options) {
		o.ProductInfo = "thermometer/1"
		began := time.Now()
		a, err := register(t, o, nil)
		require.NoError(t, err)
		require.Equal(t, "hub1.example.test", a.Hub)
		require.Equal(t, 5*time.Second, time.Since(began))
	})
	require.Equal(t, []byte{wire.ProtocolSASL, wire.ProtocolAMQP}, p.headers)
	require.Len(t, p.inits, 1)
	require.Equal(t, wire.Symbol("PLAIN"), p.inits[0].Mechanism)
	login := strings.Split(string(p.inits[0].InitialResponse), "\x00")
	require.Equal(t, []string{"", "0ne00ABCDEF/registrations/reg:0001"}, login[:2])
	require.True(t, strings.HasPrefix(login[2],
		"SharedAccessSignature sr=0ne00ABCDEF%2Fregistrations%2Freg%3A0001&sig="), login[2])
	require.Equal(t, []string{"dps.example.test"}, p.hosts)

	require.Len(t, p.attaches, 2)
	require.Equal(t, wire.RoleReceiver, p.attaches[0].Role)
	require.Equal(t, "0ne00ABCDEF/registrations/reg:0001", p.attaches[0].Source.Address)
	require.Equal(t, "0ne00ABCDEF/registrations/reg:0001", p.attaches[1].Target.(*wire.Target).Address)
	for _, m := range p.attaches {
		require.Equal(t, "2019-03-31", m.Properties.Text("com.microsoft:api-version"))
		require.Contains(t, m.Properties.Text("com.microsoft:client-version"), "thermometer/1")
	}

	require.Len(t, p.requests, 3)
	ids := make(map[any]bool)
	for _, m := range p.requests {
		ids[m.Properties.CorrelationID] = true
	}
	require.Len(t, ids, 3)
	first := p.requests[0]
	require.Equal(t, `{"registrationId":"reg:0001"}`, string(first.Body()))
	require.Equal(t, "iotdps-register", first.ApplicationProperties.Text("iotdps-operation-type"))
	require.Contains(t, first.ApplicationProperties, wire.Pair{Key: "iotdps-forceRegistration", Value: false})
	for _, m := range p.requests[1:] {
		require.Equal(t, "iotdps-get-operationstatus", m.ApplicationProperties.Text("iotdps-operation-type"))
		require.Equal(t, "4.d0.a/b c", m.ApplicationProperties.Text("iotdps-operation-id"))
		require.True(t, m.HasValue)
	}
	require.Equal(t, 3, p.accepted, "answers are accepted")
}

// The answer and the outcome of a request come in any order, and other messages between them.
func TestAnswersAndOutcomesInAnyOrder(t *testing.T) {
	for name, reply := range map[string]func(*line){
		"outcome first": done,
		"answer first": func(l *line) {
			l.answer(assigned, nil)
			l.accept()
		},
		"no outcome": func(l *line) { l.answer(assigned, nil) },
		"two answers": func(l *line) {
			done(l)
			l.answer(`{"status":"failed"}`, nil)
		},
		"others before": func(l *line) {
			for _, id := range []any{nil, "other", uint64(1), []byte("x")} {
				l.answerTo(id, `{"status":"failed"}`, nil)
			}
			for range 5 {
				l.answerTo("other", `{"status":"failed"}`, nil)
			}
			done(l)
		},
		"settled": func(l *line) { l.message(true, encoded(l.result(&wire.Message{Data: [][]byte{[]byte(assigned)}}))) },
		"a text":  func(l *line) { l.message(true, encoded(l.result(&wire.Message{Value: assigned, HasValue: true}))) },
		"binary value": func(l *line) {
			l.message(true, encoded(l.result(&wire.Message{Value: []byte(assigned), HasValue: true})))
		},
		"two sections": func(l *line) {
			l.message(true, encoded(l.result(&wire.Message{Data: [][]byte{[]byte(assigned[:9]), []byte(assigned[9:])}})))
		},
		"the largest": func(l *line) {
			l.accept()
			l.answer(strings.Repeat(" ", provisioning.MaxAnswer-len(assigned))+assigned, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			with(t, &peer{replies: []func(*line){reply}}, func(t *testing.T, o *netopt.Options) {
				_, err := register(t, o, &provisioning.Options{Policy: retrypolicy.NoRetry{}})
				require.NoError(t, err)
			})
		})
	}
}

// result makes m the answer to the request.
func (l *line) result(m *wire.Message) *wire.Message {
	m.Properties = &wire.Properties{CorrelationID: l.correlation}
	return m
}

// reject returns a reply that rejects a request.
func reject(condition wire.Symbol, text string, info wire.Map) func(*line) {
	return func(l *line) {
		l.settle(&wire.Rejected{Error: &wire.Error{Condition: condition, Description: text, Info: info}})
	}
}

func info(name string, value any) wire.Map { return wire.Map{{Key: wire.Symbol(name), Value: value}} }

func TestRejections(t *testing.T) {
	const throttled = `{"errorCode":429001,"message":"slow down"}`
	for name, row := range map[string]struct {
		reply func(*line)
		kind  transport.Kind
		after time.Duration
		text  string
	}{
		"throttled": {reject("amqp:resource-limit-exceeded", throttled, info("Retry-After", int32(20))),
			transport.Throttled, 20 * time.Second, "slow down"},
		"lower case": {reject("x", throttled, info("retry-after", uint64(21))), transport.Throttled, 21 * time.Second,
			""},
		"a text": {reject("x", throttled, info("RETRY-AFTER", "22")), transport.Throttled, 22 * time.Second, ""},
		"a date": {reject("x", throttled, info("retry-after", "Tue, 01 Jan 2030 00:00:30 GMT")), transport.Throttled,
			30 * time.Second,
			""},
		"two, the longest": {reject("x", throttled, append(info("retry-after", int8(3)), info("Retry-After", int64(24))...)),
			transport.Throttled, 24 * time.Second,
			""},
		"too long":       {reject("x", throttled, info("retry-after", uint64(1)<<63)), transport.Throttled, time.Hour, ""},
		"negative":       {reject("x", throttled, info("retry-after", int64(-5))), transport.Throttled, 0, ""},
		"far below zero": {reject("x", throttled, info("retry-after", int64(math.MinInt64+1))), transport.Throttled, 0, ""},
		"another type":   {reject("x", throttled, info("retry-after", true)), transport.Throttled, 0, ""},
		"server error": {reject("amqp:internal-error", `{"errorCode":503001}`, info("retry-after", int32(7))),
			transport.Unavailable, 7 * time.Second,
			""},
		"refused": {reject("amqp:unauthorized-access", `{"errorCode":401002,"message":"Invalid certificate."}`, nil),
			transport.Unauthorized, 0,
			"Invalid certificate."},
		"not enrolled": {reject("amqp:not-found", `{"errorCode":404201,"trackingId":"t-1"}`, nil), transport.NotFound, 0,
			"t-1"},

		"no JSON": {reject("amqp:not-found", "gone", info("retry-after", int32(9))), transport.NotFound, 9 * time.Second,
			"gone"},
		"no code":           {reject("amqp:not-allowed", assigned, nil), transport.Forbidden, 0, ""},
		"null code":         {reject("amqp:not-allowed", `{"errorCode":null,`+assigned[1:], nil), transport.Forbidden, 0, ""},
		"unknown condition": {reject("com.example:odd", "odd", nil), transport.Unknown, 0, "com.example:odd"},
		"no error":          {func(l *line) { l.settle(&wire.Rejected{}) }, transport.Unknown, 0, "no reason given"},
		"released":          {func(l *line) { l.settle(&wire.Released{}) }, transport.Unavailable, 0, "did not take"},
		"modified":          {func(l *line) { l.settle(&wire.Modified{}) }, transport.Unavailable, 0, "did not take"},
		"a code in an accepted answer": {func(l *line) {
			l.accept()
			l.answer(throttled, info("retry-after", int32(5)))
		}, transport.Throttled, 5 * time.Second, ""},
		"disabled": {func(l *line) {
			l.accept()
			l.answer(`{"status":"disabled"}`, nil)
		}, transport.Forbidden, 0, "enrollment is disabled"},
	} {
		t.Run(name, func(t *testing.T) {
			with(t, &peer{replies: []func(*line){row.reply}}, func(t *testing.T, o *netopt.Options) {
				var failure *transport.Error
				_, err := register(t, o, &provisioning.Options{Policy: retrypolicy.NoRetry{}})
				failure = transport.Find(err)
				if expired, ok := errors.AsType[*retrypolicy.Error](err); ok {
					failure = transport.Find(expired.Err)
				}
				require.Equal(t, row.kind, failure.Kind, "%v", err)
				require.Equal(t, row.after, failure.RetryAfter)
				require.ErrorContains(t, err, row.text)
			})
		})
	}
}

// The end of a link, of the session or of the connection is reported at once, with its condition.
func TestEndsDuringARequest(t *testing.T) {
	why := &wire.Error{Condition: "amqp:connection:forced", Description: "maintenance"}
	for name, end := range map[string]func(*line){
		"link of answers": func(l *line) {
			l.send(l.channel, &wire.Detach{Handle: l.sender, Closed: true, Error: why}, nil)
		},
		"link of requests": func(l *line) {
			l.send(l.channel, &wire.Detach{Handle: l.client, Closed: true, Error: why}, nil)
		},
		"session":    func(l *line) { l.send(l.channel, &wire.End{Error: why}, nil) },
		"connection": func(l *line) { l.send(0, &wire.Close{Error: why}, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			p := &peer{replies: []func(*line){end, done}}
			with(t, p, func(t *testing.T, o *netopt.Options) {
				began := time.Now()
				var failures []error
				_, err := register(t, o, &provisioning.Options{OnEvent: func(e provisioning.Event) {
					if e.Err != nil {
						require.Zero(t, time.Since(began))
						failures = append(failures, e.Err)
					}
				}})
				require.NoError(t, err)
				require.Len(t, failures, 1)
				require.ErrorIs(t, failures[0], transport.Unavailable)
				said, ok := errors.AsType[*amqp.ConditionError](failures[0])
				require.True(t, ok, "%v", failures[0])
				require.Equal(t, "maintenance", said.Description)
			})
		})
	}
}

// An answer or an outcome that is followed by the end of the connection counts. The goroutines race
// for it, so that each case runs many times.
func TestAnAnswerBeforeTheEndCounts(t *testing.T) {
	const rounds = 30
	for range rounds {
		for _, c := range []struct {
			reply func(*line)
			want  error
		}{
			{done, nil},
			{func(l *line) {
				l.settle(&wire.Rejected{Error: &wire.Error{Condition: "x", Description: `{"errorCode":404201}`}})
			}, transport.NotFound},
		} {
			p := &peer{replies: []func(*line){func(l *line) {
				c.reply(l)
				l.send(0, &wire.Close{Error: &wire.Error{Condition: "amqp:connection:forced"}}, nil)
			}}}
			with(t, p, func(t *testing.T, o *netopt.Options) {
				_, err := register(t, o, &provisioning.Options{Policy: retrypolicy.NoRetry{}})
				require.ErrorIs(t, err, c.want)
			})
		}
	}
}

func TestRefusedLogins(t *testing.T) {
	why := &wire.Error{Condition: "amqp:unauthorized-access", Description: "sig=secret"}
	for name, row := range map[string]struct {
		p    *peer
		kind transport.Kind
	}{
		"auth":         {&peer{code: 1}, transport.Unauthorized},
		"sys-perm":     {&peer{code: 3}, transport.Forbidden},
		"sys-temp":     {&peer{code: 4}, transport.RetryExpired},
		"other code":   {&peer{code: 9}, transport.Unknown},
		"no mechanism": {&peer{mechanisms: []wire.Symbol{"X"}}, transport.Unsupported},
		"no SASL":      {&peer{noSASL: true}, transport.Unsupported},
		"links":        {&peer{refusal: why}, transport.Unauthorized},
		"connection":   {&peer{closing: why}, transport.Unauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			with(t, row.p, func(t *testing.T, o *netopt.Options) {
				_, err := register(t, o, &provisioning.Options{Policy: retrypolicy.NoRetry{}})
				require.ErrorIs(t, err, row.kind, "%v", err)
				require.NotContains(t, err.Error(), "secret")
				if row.p.code != 0 {
					said, ok := errors.AsType[*amqp.SASLError](err)
					require.True(t, ok)
					require.EqualValues(t, row.p.code, said.Code)
				}
				require.Equal(t, "amqp", transport.Find(err).Proto)
			})
		})
	}
}

// A certificate logs in with EXTERNAL, and without SASL where there is no EXTERNAL.
func TestALoginWithoutAToken(t *testing.T) {
	for name, row := range map[string]struct {
		p       *peer
		headers []byte
		inits   int
	}{
		"EXTERNAL":    {&peer{}, []byte{wire.ProtocolSASL, wire.ProtocolAMQP}, 1},
		"no EXTERNAL": {&peer{mechanisms: []wire.Symbol{"PLAIN"}}, []byte{wire.ProtocolSASL, wire.ProtocolAMQP}, 0},
		"no SASL":     {&peer{noSASL: true}, []byte{wire.ProtocolSASL, wire.ProtocolAMQP}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			row.p.replies = []func(*line){done}
			with(t, row.p, func(t *testing.T, o *netopt.Options) {
				id := identity(t)
				id.Sign = nil
				c, err := provisioning.New(id, dpsamqp.New(o), nil)
				require.NoError(t, err)
				_, err = c.Register(t.Context())
				require.NoError(t, err)
			})
			require.Equal(t, row.headers, row.p.headers)
			require.Len(t, row.p.inits, row.inits)
			if row.inits > 0 {
				require.Equal(t, wire.Symbol("EXTERNAL"), row.p.inits[0].Mechanism)
			}
		})
	}
}

// A service that offers no EXTERNAL and insists on SASL is not asked a third time.
func TestAServiceThatInsistsOnSASL(t *testing.T) {
	p := &peer{mechanisms: []wire.Symbol{"PLAIN"}, insists: true}
	with(t, p, func(t *testing.T, o *netopt.Options) {
		id := identity(t)
		id.Sign = nil
		c, err := provisioning.New(id, dpsamqp.New(o), nil)
		require.NoError(t, err)
		_, err = c.Register(t.Context())
		require.ErrorIs(t, err, transport.Unsupported)
		require.ErrorContains(t, err, "offers no EXTERNAL")
	})
	require.Equal(t, []byte{wire.ProtocolSASL, wire.ProtocolAMQP}, p.headers)
}

// A service that is silent in any step costs the RequestTimeout, and no more.
func TestASilentServiceTimesOut(t *testing.T) {
	for _, step := range []string{"header", "init", "open", "begin", "attach", "credit", "request"} {
		t.Run(step, func(t *testing.T) {
			with(t, &peer{mute: step, noCredit: step == "credit"}, func(t *testing.T, o *netopt.Options) {
				began := time.Now()
				_, err := register(t, o, &provisioning.Options{RequestTimeout: 7 * time.Second, Policy: retrypolicy.NoRetry{}})
				require.ErrorContains(t, err, "no answer in time")
				require.Equal(t, transport.Timeout, transport.KindOf(errors.Unwrap(errors.Unwrap(err))), "%v", err)
				require.Less(t, time.Since(began), 8*time.Second)
				require.GreaterOrEqual(t, time.Since(began), 7*time.Second)
			})
		})
	}
}

// A peer that speaks another protocol, and services that break AMQP.
func TestOddServices(t *testing.T) {
	bad := func(text string) []byte { return []byte(text) }
	for name, row := range map[string]struct {
		p    *peer
		text string
	}{
		"a huge frame":  {&peer{says: bad("\xff\xff\xff\xff\x02\x00\x00\x00")}, "frame has the size"},
		"a short frame": {&peer{says: bad("\x00\x00\x00\x04\x02\x00\x00\x00")}, "frame has the size"},
		"another open":  {&peer{says: bad("\x00\x00\x00\x0f\x02\x00\x00\x00\x00\x53\x10\xc0\x03\x01\xa1")}, "peer"},
		"a stray transfer": {&peer{says: bad("\x00\x00\x00\x10\x02\x00\x00\x05\x00\x53\x14\xc0\x03\x01\x52\x01")},
			"has no session"},
		"a huge answer": {&peer{replies: []func(*line){func(l *line) {
			l.message(true, bytes.Repeat([]byte{0, 0x53, 0x75, 0xa0, 0}, 1<<16))
		}}}, "message has more than"},
		"no message": {&peer{replies: []func(*line){func(l *line) {
			l.message(true, bad("\x00\x53\x75\xa0"))
		}}}, "message"},
		"a wrong handle": {&peer{replies: []func(*line){func(l *line) {
			l.sender = 99
			l.message(true, nil)
			l.message(true, bad("x"))
		}}}, "no link is attached"},
		"settles a stranger": {&peer{replies: []func(*line){func(l *line) {
			l.id += 7
			l.accept()
			l.id -= 7
		}}}, "no answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			with(t, row.p, func(t *testing.T, o *netopt.Options) {
				_, err := register(t, o, &provisioning.Options{RequestTimeout: 5 * time.Second, Policy: retrypolicy.NoRetry{}})
				require.ErrorContains(t, err, row.text)
				require.ErrorIs(t, err, transport.RetryExpired, "%v", err)
			})
		})
	}
	testkit.In2030(t, func(t *testing.T) {
		near, far := memconn.Pair("near", "far")
		_, _ = far.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		_, err := register(t, &netopt.Options{Plaintext: true, Dial: dialTo(near)}, nil)
		require.ErrorIs(t, err, transport.Protocol)
		require.ErrorContains(t, err, "check host and port")
	})
}

func TestASessionClosesWithinASecond(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		p := &peer{network: memconn.NewNetwork("dps.example.test:5672")}
		served := make(chan struct{})
		go func() {
			p.serve()
			close(served)
		}()
		s, err := dpsamqp.New(&netopt.Options{Plaintext: true, Dial: p.network.DialContext}).Open(t.Context(),
			&provisioning.Login{Endpoint: "dps.example.test", IDScope: "s", RegistrationID: "r", Timeout: time.Minute,
				Now: time.Now})
		require.NoError(t, err)
		conn := p.network.Last()
		if stuck {
			conn.SetSendBuffer(1)
			conn.Hold(true)
		}
		began := time.Now()
		s.Close()
		require.Less(t, time.Since(began), 2*time.Second, "a second, on a busy machine two")
		conn.Reset()
		_ = p.network.Close()
		<-served
	}
}

func TestWrongProductInfo(t *testing.T) {
	for text, info := range map[string]string{"ProductInfo has 2000 bytes": strings.Repeat("x", 2000),
		"ProductInfo is not valid UTF-8": "\xff"} {
		_, err := register(t, &netopt.Options{ProductInfo: info}, nil)
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, text)
	}
}

// Any message that a service sends is an answer within the limits, or an error.
func FuzzAnswer(f *testing.F) {
	f.Add(encoded(&wire.Message{Data: [][]byte{[]byte(assigned)}, ApplicationProperties: info("retry-after", int32(3))}))
	f.Add(encoded(&wire.Message{Value: "x", HasValue: true}))
	f.Add([]byte{0, 0x53, 0x77, 0x73, 0, 0, 0, 0x41}) // a char
	f.Fuzz(func(t *testing.T, message []byte) {
		p := &peer{replies: []func(*line){func(l *line) {
			l.accept()
			l.message(true, append(encoded(l.result(&wire.Message{})), message...))
		}}}
		with(t, p, func(t *testing.T, o *netopt.Options) {
			s, err := dpsamqp.New(o).Open(t.Context(), &provisioning.Login{Endpoint: "dps.example.test", IDScope: "s",
				RegistrationID: "r", Timeout: time.Second, Now: time.Now})
			require.NoError(t, err)
			defer s.Close()
			a, err := s.Exchange(t.Context(), &provisioning.Request{Body: []byte("{}")})
			if err != nil {
				require.NotZero(t, transport.KindOf(err))
				return
			}
			require.LessOrEqual(t, len(a.Body), provisioning.MaxAnswer+4<<10)
			require.GreaterOrEqual(t, a.RetryAfter, time.Duration(0))
		})
	})
}
