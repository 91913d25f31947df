package hub_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

const (
	issueTopic    = "$iothub/credentials/POST/issueCertificate/?$rid="
	issuedAnswers = "$iothub/credentials/res/#"
)

// certifiedDevice is a hub with the device dev-x, which has a certificate.
type certifiedDevice struct {
	t   *testing.T
	h   *testbroker.Hub
	d   hubdata.Device
	own tls.Certificate
	key *ecdsa.PrivateKey // of requests
}

func newCertified(t *testing.T, o *testbroker.Options) *certifiedDevice {
	h, err := testbroker.New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	c := &certifiedDevice{t: t, h: h, own: testbroker.NewClientCert("dev-x", time.Time{}, time.Now().Add(48*time.Hour))}
	c.d, err = h.AddDeviceX509("dev-x", testbroker.Thumbprint(c.own.Leaf))
	require.NoError(t, err)
	c.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return c
}

// connect returns the code of the CONNACK. The session is kept.
func (c *certifiedDevice) connect(cert tls.Certificate) (*hubtest.Wire, byte) {
	w := hubtest.DialTLS(c.t, c.h, cert)
	login := hubtest.Certified(c.d)
	login.Flags = 0
	login.User = strings.Replace(login.User, "2021-04-12", "2025-08-01-preview", 1)
	return w, w.Connect(login)[1]
}

// listen connects and subscribes.
func (c *certifiedDevice) listen() *hubtest.Wire {
	w, code := c.connect(c.own)
	require.Zero(c.t, code)
	require.Equal(c.t, []byte{1}, w.Subscribe(1, issuedAnswers))
	return w
}

func (c *certifiedDevice) body(name, replace string) string {
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, c.key)
	require.NoError(c.t, err)
	all := map[string]any{"id": "dev-x", "csr": der}
	if replace != "" {
		all["replace"] = replace
	}
	text, err := json.Marshal(all)
	require.NoError(c.t, err)
	return string(text)
}

// issued is a body of the hub.
type issued struct {
	ErrorCode    int
	Message      string
	Correlation  string `json:"correlationId"`
	Expires      string `json:"operationExpires"`
	RetryAfter   int
	Certificates [][]byte
	Info         struct{ CredentialError, RequestID string }
}

// next reads an answer and acknowledges it.
func (c *certifiedDevice) next(w *hubtest.Wire) (topic string, a issued) {
	m := hubtest.ReadPublish(w)
	require.Equal(c.t, byte(1), m.QoS)
	require.GreaterOrEqual(c.t, m.ID, uint16(0xFF00), "C2D messages have other ids")
	hubtest.Ack(w, m.ID)
	require.NoError(c.t, json.Unmarshal([]byte(m.Body), &a), m.Body)
	return strings.TrimPrefix(m.Topic, "$iothub/credentials/res/"), a
}

// ask sends a request and returns the first answer.
func (c *certifiedDevice) ask(w *hubtest.Wire, rid, body string) (topic string, a issued) {
	w.Publish(1, issueTopic+rid, body)
	require.Equal(c.t, uint16(1), w.Acked())
	return c.next(w)
}

// get requests a certificate and returns it.
func (c *certifiedDevice) get(w *hubtest.Wire, rid, replace string) tls.Certificate {
	topic, a := c.ask(w, rid, c.body("dev-x", replace))
	require.Equal(c.t, "202/?$rid="+rid, topic)
	require.NotEmpty(c.t, a.Correlation)
	require.NotEmpty(c.t, a.Expires)
	topic, b := c.next(w)
	require.Equal(c.t, "200/?$rid="+rid, topic)
	require.Equal(c.t, a.Correlation, b.Correlation)
	require.Len(c.t, b.Certificates, 2)
	return tls.Certificate{Certificate: b.Certificates, PrivateKey: c.key}
}

// The hub accepts the new certificate from then on, and the old one until it ends.
func TestAHubIssuesCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCertified(t, nil)
		w := c.listen()
		cert := c.get(w, "r-001", "")
		leaf, err := x509.ParseCertificate(cert.Certificate[0])
		require.NoError(t, err)
		require.Equal(t, "dev-x", leaf.Subject.CommonName)
		require.Equal(t, time.Now().Add(30*24*time.Hour).UTC(), leaf.NotAfter)
		_, err = leaf.Verify(x509.VerifyOptions{Roots: c.h.RootCAs(), CurrentTime: time.Now(),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		require.NoError(t, err)

		topic, again := c.ask(w, "r-001", c.body("dev-x", ""))
		require.Equal(t, "200/?$rid=r-001", topic, "the same request has the same answer")
		require.Equal(t, cert.Certificate, again.Certificates)

		for _, use := range []tls.Certificate{cert, c.own} {
			_, code := c.connect(use)
			require.Zero(t, code)
		}
		time.Sleep(49 * time.Hour)
		_, code := c.connect(c.own)
		require.Equal(t, byte(5), code, "the old one has ended")
		_, code = c.connect(cert)
		require.Zero(t, code)
		time.Sleep(30 * 24 * time.Hour)
		_, code = c.connect(cert)
		require.Equal(t, byte(5), code)
		log := c.h.CertificateRequests()
		require.Len(t, log, 2)
		require.Equal(t, []int{202, 200}, []int{log[0].Status, log[1].Status})
		require.Equal(t, "r-001", log[0].RequestID)
	})
}

// The newest four are accepted.
func TestAHubForgetsTheOldestCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCertified(t, nil)
		w := c.listen()
		var all []tls.Certificate
		for _, rid := range []string{"r-001", "r-002", "r-003", "r-004", "r-005"} {
			all = append(all, c.get(w, rid, ""))
		}
		for i, cert := range all {
			_, code := c.connect(cert)
			require.Equal(t, i == 0, code == 5)
		}
	})
}

// A back end that updates the device in the registry does not know the issued certificates.
func TestARegistryUpdateKeepsIssuedCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCertified(t, nil)
		cert := c.get(c.listen(), "r-001", "")
		p := hubtest.BackEnd(t, c.h, hubdata.RightAll)
		entry := p.Do("GET", "/devices/dev-x"+hubtest.Version, "")
		p.Do("PUT", "/devices/dev-x"+hubtest.Version, entry.Text, "If-Match", "*").Object(t)
		_, code := c.connect(cert)
		require.Zero(t, code)
	})
}

// A back end that replaces the thumbprint, or gives the device keys, locks out a lost certificate.
func TestOtherCredentialsEndIssuedCertificates(t *testing.T) {
	for name, auth := range map[string]string{
		"thumbprint": `{"type":"selfSigned","x509Thumbprint":{"primaryThumbprint":"` + strings.Repeat("AB", 20) + `"}}`,
		"keys":       `{"type":"sas"}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCertified(t, nil)
				cert := c.get(c.listen(), "r-001", "")
				p := hubtest.BackEnd(t, c.h, hubdata.RightAll)
				p.Do("PUT", "/devices/dev-x"+hubtest.Version,
					`{"deviceId":"dev-x","authentication":`+auth+`}`, "If-Match", "*").Object(t)
				_, code := c.connect(cert)
				require.Equal(t, byte(5), code)
			})
		})
	}
}

func TestRequestsThatTheHubRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCertified(t, nil)
		w := c.listen()
		good := c.body("dev-x", "")
		for name, row := range map[string]struct {
			rid, body string
			code      int
		}{
			"short id":            {"r-1", good, 400001},
			"long id":             {strings.Repeat("r", 37), good, 400001},
			"dash first":          {"-r-1", good, 400001},
			"other character":     {"r_001", good, 400001},
			"no JSON":             {"r-001", "{", 400006},
			"another device":      {"r-001", strings.Replace(good, "dev-x", "dev-y", 1), 400004},
			"unknown member":      {"r-001", strings.Replace(good, "{", `{"more":1,`, 1), 400004},
			"no signing request":  {"r-001", `{"id":"dev-x"}`, 400040},
			"no base64":           {"r-001", `{"id":"dev-x","csr":"!"}`, 400040},
			"damaged":             {"r-001", `{"id":"dev-x","csr":"AAAA"}`, 400040},
			"too long":            {"r-001", `{"id":"dev-x","csr":"` + strings.Repeat("A", 8196) + `"}`, 400040},
			"another common name": {"r-001", c.body("dev-y", ""), 400040},
			"nothing to replace":  {"r-001", c.body("dev-x", "*"), 412001},
		} {
			topic, a := c.ask(w, row.rid, row.body)
			require.Equal(t, row.code, a.ErrorCode, name)
			require.Equal(t, strconv.Itoa(row.code/1000)+"/?$rid="+row.rid, topic)
			require.Equal(t, row.code == 400040, a.Info.CredentialError != "", name)
		}
		hubtest.Quiet(w)

		none := newCertified(t, &testbroker.Options{Certificates: testbroker.CertificateOptions{Life: -1}})
		_, a := none.ask(none.listen(), "r-001", good)
		require.Equal(t, 403010, a.ErrorCode)
	})
}

// One request is active at a time. The same one is answered again, another one must replace it.
func TestOneRequestIsActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCertified(t, &testbroker.Options{Certificates: testbroker.CertificateOptions{Delay: time.Minute}})
		w := c.listen()
		ask := func(rid, replace string) (topic string, code int) {
			topic, a := c.ask(w, rid, c.body("dev-x", replace))
			return topic, a.ErrorCode
		}
		topic, _ := ask("r-001", "")
		require.Equal(t, "202/?$rid=r-001", topic)
		topic, _ = ask("r-001", "")
		require.Equal(t, "202/?$rid=r-001", topic)
		_, code := ask("r-002", "")
		require.Equal(t, 409005, code)
		_, code = ask("r-002", "r-009")
		require.Equal(t, 412001, code)
		topic, _ = ask("r-002", "r-001")
		require.Equal(t, "202/?$rid=r-002", topic)
		topic, _ = ask("r-003", "*")
		require.Equal(t, "202/?$rid=r-003", topic)
		synctest.Wait() // the hub has the PUBACK, and does not repeat the answer
		w.Conn.Close()
		w = c.listen()
		time.Sleep(61 * time.Second)
		topic, a := c.next(w)
		require.Equal(t, "200/?$rid=r-003", topic, "over another connection, and for the last request only")
		require.NotEmpty(t, a.Certificates)
		hubtest.Quiet(w)
		require.Len(t, c.h.CertificateRequests(), 6)
		c.h.Reset()
		require.Empty(t, c.h.CertificateRequests())
	})
}

// Answers wait for a subscription, and for their PUBACK over connections.
func TestAnswersAboutCertificatesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCertified(t, nil)
		w, code := c.connect(c.own)
		require.Zero(t, code)
		w.Publish(1, issueTopic+"r-001", c.body("dev-x", ""))
		w.Acked()
		hubtest.Quiet(w)
		require.Equal(t, []byte{1}, w.Subscribe(1, issuedAnswers))
		first := hubtest.ReadPublish(w)
		require.False(t, first.DUP)
		hubtest.ReadPublish(w)
		hubtest.Ack(w, first.ID)
		hubtest.Quiet(w)
		w.Conn.Close()

		w, code = c.connect(c.own)
		require.Zero(t, code)
		second := hubtest.ReadPublish(w)
		require.True(t, second.DUP)
		require.Equal(t, "$iothub/credentials/res/200/?$rid=r-001", second.Topic)
		hubtest.Ack(w, second.ID)
		hubtest.Quiet(w)
		w.Conn.Close()
		w, _ = c.connect(c.own)
		hubtest.Quiet(w)
	})
}

// A device that asks and never listens does not fill the hub's memory: the newest answers wait.
func TestAnswersAboutCertificatesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCertified(t, nil)
		w, code := c.connect(c.own)
		require.Zero(t, code)
		for range 100 {
			w.Publish(1, issueTopic+"r-001", c.body("dev-x", ""))
			w.Acked()
		}
		require.Equal(t, []byte{1}, w.Subscribe(1, issuedAnswers))
		for range 16 {
			topic, _ := c.next(w)
			require.Equal(t, "200/?$rid=r-001", topic)
		}
		hubtest.Quiet(w)
	})
}

// Only a client of a new version of the API may ask.
func TestAnOldVersionHasNoCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCertified(t, nil)
		w := hubtest.DialTLS(t, c.h, c.own)
		require.Equal(t, []byte{0, 0}, w.Connect(hubtest.Certified(c.d)))
		require.Equal(t, []byte{0x80}, w.Subscribe(1, issuedAnswers))
		w.Publish(1, issueTopic+"r-001", c.body("dev-x", ""))
		require.Error(t, w.End())
	})
}

func TestFaultsOfCertificates(t *testing.T) {
	answers := func(t *testing.T, f fault.Fault, also func(c *certifiedDevice, w *hubtest.Wire)) {
		synctest.Test(t, func(t *testing.T) {
			c := newCertified(t, nil)
			w := c.listen()
			f.Device = "dev-x"
			in := c.h.Inject(f)
			w.Publish(1, issueTopic+"r-001", c.body("dev-x", ""))
			also(c, w)
			require.Equal(t, 1, in.Fired())
		})
	}
	accepted := func(c *certifiedDevice, w *hubtest.Wire) {
		w.Acked()
		topic, _ := c.next(w)
		require.Equal(c.t, "202/?$rid=r-001", topic)
	}
	for name, row := range map[string]struct {
		fault fault.Fault
		want  func(c *certifiedDevice, w *hubtest.Wire)
	}{
		"refused": {fault.Fault{Kind: fault.RefuseCertificate, RetryAfter: 1500 * time.Millisecond},
			func(c *certifiedDevice, w *hubtest.Wire) {
				w.Acked()
				topic, a := c.next(w)
				require.Equal(c.t, "429/?$rid=r-001", topic)
				require.Equal(c.t, 429001, a.ErrorCode)
				require.Equal(c.t, 2, a.RetryAfter)
				hubtest.Quiet(w)
			}},
		"refused with a code": {fault.Fault{Kind: fault.RefuseCertificate, Status: 400, ErrorCode: 400037},
			func(c *certifiedDevice, w *hubtest.Wire) {
				w.Acked()
				_, a := c.next(w)
				require.Equal(c.t, 400037, a.ErrorCode)
			}},
		"cut before": {fault.Fault{Kind: fault.DropBeforeCertificate}, func(c *certifiedDevice, w *hubtest.Wire) {
			require.Error(c.t, w.End())
			require.Empty(c.t, c.h.CertificateRequests())
		}},
		"cut after": {fault.Fault{Kind: fault.DropAfterCertificate}, func(c *certifiedDevice, w *hubtest.Wire) {
			require.Error(c.t, w.End())
			w, _ = c.connect(c.own)
			topic, _ := c.next(w)
			require.Equal(c.t, "202/?$rid=r-001", topic)
			topic, _ = c.next(w)
			require.Equal(c.t, "200/?$rid=r-001", topic)
		}},
		"swallowed": {fault.Fault{Kind: fault.SwallowCertificate}, func(c *certifiedDevice, w *hubtest.Wire) {
			w.Acked()
			hubtest.Quiet(w)
			topic, _ := c.ask(w, "r-001", c.body("dev-x", ""))
			require.Equal(c.t, "200/?$rid=r-001", topic)
		}},
		"slow": {fault.Fault{Kind: fault.SlowCertificate, Delay: time.Minute}, func(c *certifiedDevice, w *hubtest.Wire) {
			accepted(c, w)
			hubtest.Quiet(w)
			time.Sleep(time.Minute)
			topic, _ := c.next(w)
			require.Equal(c.t, "200/?$rid=r-001", topic)
		}},
		"twice": {fault.Fault{Kind: fault.DuplicateCertificate}, func(c *certifiedDevice, w *hubtest.Wire) {
			accepted(c, w)
			for _, want := range []string{"202", "200", "200"} {
				topic, _ := c.next(w)
				require.Equal(c.t, want+"/?$rid=r-001", topic)
			}
		}},
		"another id": {fault.Fault{Kind: fault.MisnameCertificate}, func(c *certifiedDevice, w *hubtest.Wire) {
			w.Acked()
			topic, _ := c.next(w)
			require.Equal(c.t, "202/?$rid=r-001-other", topic)
		}},
		"garbled": {fault.Fault{Kind: fault.GarbleCertificate}, func(c *certifiedDevice, w *hubtest.Wire) {
			accepted(c, w)
			require.Equal(c.t, `{"correlationId`, hubtest.ReadPublish(w).Body)
		}},
		"wrong": {fault.Fault{Kind: fault.WrongCertificate}, func(c *certifiedDevice, w *hubtest.Wire) {
			accepted(c, w)
			_, a := c.next(w)
			leaf, err := x509.ParseCertificate(a.Certificates[0])
			require.NoError(c.t, err)
			require.Equal(c.t, "dev-x", leaf.Subject.CommonName)
			require.False(c.t, c.key.PublicKey.Equal(leaf.PublicKey))
		}},
		"revoked": {fault.Fault{Kind: fault.ForgetCertificate}, func(c *certifiedDevice, w *hubtest.Wire) {
			accepted(c, w)
			_, a := c.next(w)
			_, code := c.connect(tls.Certificate{Certificate: a.Certificates, PrivateKey: c.key})
			require.Equal(c.t, byte(5), code)
		}},
	} {
		t.Run(name, func(t *testing.T) { answers(t, row.fault, row.want) })
	}
}
