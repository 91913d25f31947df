package dps_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// A function of an enrollment that ends its goroutine, as a failed assertion does, ends one request
// only.
func TestAnAllocationThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, hubs := newDPS(t, &testbroker.DPSOptions{Polls: -1}, "hub-a.example.test")
		var calls atomic.Int64
		e := enroll(t, d, dpsdata.Enrollment{ID: "reg-1", Allocation: dpsdata.AllocationCustom,
			Allocate: func(dpsdata.AllocationRequest) (dpsdata.AllocationResult, error) {
				if calls.Add(1) == 1 {
					runtime.Goexit()
				}
				return dpsdata.AllocationResult{Hub: "hub-a.example.test"}, nil
			}})
		conn, err := d.Dial(testbroker.PortHTTP)(t.Context(), "tcp", "dps:80")
		require.NoError(t, err)
		_, err = fmt.Fprintf(conn, "PUT /%s/registrations/reg-1/register%s HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\n"+
			"Content-Length: 0\r\n\r\n", d.IDScope(), dpsVersion, d.HostName(), dpsToken(d, "reg-1", e.PrimaryKey))
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, conn.Close())
		require.EqualValues(t, 1, calls.Load())

		p := overDPSAs(t, d, e)
		began := time.Now()
		require.Equal(t, "assigned", register(p, "reg-1", "").Status)
		require.Zero(t, time.Since(began))
		require.Len(t, hubs["hub-a.example.test"].Devices(), 1)
	})
}

// A request id becomes part of the topic of the answer, which must be a topic.
func TestRequestIDsThatMakeNoTopic(t *testing.T) {
	withDevice(t, func(t *testing.T, d *testbroker.DPS, e dpsdata.Enrollment) {
		for name, rid := range map[string]string{
			"empty": "", "wildcard": "1#", "one level": "+", "long": strings.Repeat("r", 1025),
			"longer than a topic with its answer": strings.Repeat("r", 65400),
		} {
			w := dpsLogin(t, d, "reg-1", e.PrimaryKey)
			w.Publish(2, dpsRegister+rid, "")
			require.Error(t, w.End(), name)
		}
		require.Empty(t, d.Requests())
		w := dpsLogin(t, d, "reg-1", e.PrimaryKey)
		rid := strings.Repeat("r", 1024)
		w.Publish(2, dpsRegister+rid, "")
		w.Acked()
		topic, _ := readDPS(w)
		require.Equal(t, dpsAnswers+"202/?$rid="+rid+"&retry-after=3", topic)
	})
}

// What a back end cannot see of an enrollment stays when it writes back what it has read.
func TestABackEndKeepsTheAllocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, &testbroker.DPSOptions{Polls: -1}, "hub-a.example.test")
		allocate := func(dpsdata.AllocationRequest) (dpsdata.AllocationResult, error) {
			return dpsdata.AllocationResult{}, errors.New("no")
		}
		p := dpsBackEnd(t, d)
		for id, e := range map[string]dpsdata.Enrollment{
			"turns":  {ID: "turns", Allocation: dpsdata.AllocationRoundRobin},
			"hashed": {ID: "hashed"},
			"fixed":  {ID: "fixed", Allocation: dpsdata.AllocationFixed},
			"custom": {ID: "custom", Allocation: dpsdata.AllocationCustom, Allocate: allocate},
		} {
			enroll(t, d, e)
			_, got := ask(p, 200, "GET", "/enrollments/"+id, "")
			got["provisioningStatus"] = "disabled"
			body, err := json.Marshal(got)
			require.NoError(t, err)
			ask(p, 200, "PUT", "/enrollments/"+id, string(body), "If-Match", "*")
			after, err := d.Enrollment(id)
			require.NoError(t, err)
			require.True(t, after.Disabled)
			require.Equal(t, e.Allocation, after.Allocation)
			require.Equal(t, e.Allocate != nil, after.Allocate != nil)
		}
	})
}

// The service knows the latest eight operations of a device.
func TestEarlierOperationsAreKnown(t *testing.T) {
	withDevice(t, func(t *testing.T, d *testbroker.DPS, e dpsdata.Enrollment) {
		p := overDPSAs(t, d, e)
		var ids []string
		for range 9 {
			ids = append(ids, register(p, "reg-1", "").OperationID)
		}
		require.Equal(t, 404, poll(p, "reg-1", ids[0]).status)
		for _, id := range ids[1:] {
			require.Equal(t, 200, poll(p, "reg-1", id).status)
		}
	})
}

// A device may have the name of a group, its own or another one.
func TestADeviceWithTheNameOfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, &testbroker.DPSOptions{Polls: -1}, "hub-a.example.test")
		enroll(t, d, dpsdata.Enrollment{ID: "grp-a", Group: true})
		b := enroll(t, d, dpsdata.Enrollment{ID: "grp-b", Group: true})
		p := overDPS(t, d)
		for _, id := range []string{"grp-a", "grp-b"} {
			p.Token = dpsToken(d, id, dpsdata.DeriveKey(b.PrimaryKey, id))
			a := register(p, id, "")
			require.Equal(t, 200, a.status, a.body)
			require.Equal(t, "grp-b", a.State.SymmetricKey.EnrollmentGroupID)
		}
	})
}

func TestASigningRequestNeedsANewVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newDPS(t, &testbroker.DPSOptions{Polls: -1}, "hub-a.example.test")
		e := enroll(t, d, dpsdata.Enrollment{ID: "reg-1", Issue: testbroker.NewCertAuthority("root").Issuer(0)})
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		der, err := x509.CreateCertificateRequest(rand.Reader,
			&x509.CertificateRequest{Subject: pkix.Name{CommonName: "reg-1"}}, key)
		require.NoError(t, err)
		body := `{"csr":"` + base64.StdEncoding.EncodeToString(der) + `"}`
		p := overDPSAs(t, d, e)
		status := map[bool]int{false: 400, true: 200}
		for version, knows := range map[string]bool{"2019-03-31": false, "2026-08-31": false, "2025-07-01-preview": true,
			"2026-07-01-preview": true, "2026-11-01": true, "2026-11-02-preview": true} {
			a := provision(p, "PUT", "/"+testScope+"/registrations/reg-1/register?api-version="+version, body)
			require.Equal(t, status[knows], a.status, a.body)
			require.Equal(t, knows, len(a.State.IssuedCertificateChain) > 0)

			path := "/" + testScope + "/registrations/reg-1?api-version=" + version
			if a := provision(p, "POST", path, "{}"); a.status == 200 { // there is none before the first registration
				require.NotContains(t, a.body, "issuedCertificateChain")
			}
			a = provision(p, "POST", path, body)
			require.Equal(t, 400, a.status, "a look-up issues none: %s", a.body)
		}
	})
}

// FuzzDPS sends arbitrary bytes to a provisioning service, over each protocol.
func FuzzDPS(f *testing.F) {
	d, _ := newDPS(f, &testbroker.DPSOptions{Polls: -1, Keep: 10}, "hub-a.example.test")
	e := enroll(f, d, dpsdata.Enrollment{ID: "reg-1"})
	token := dpsToken(d, "reg-1", e.PrimaryKey)
	head := " HTTP/1.1\r\nHost: " + d.HostName() + "\r\nAuthorization: " + token + "\r\n"
	for _, s := range []string{
		"PUT /0ne00ABCDEF/registrations/reg-1/register" + dpsVersion + head + "Content-Length: 2\r\n\r\n{}",
		"GET /0ne00ABCDEF/registrations/reg-1/operations/%2e%2e" + dpsVersion + head + "\r\n",
		"POST /0ne00ABCDEF/registrations/reg%2F1" + dpsVersion + head + "\r\n",
		"PUT /enrollments/reg-2" + dpsServiceVersion + head + "\r\n", "\x16\x03\x01",
	} {
		f.Add(uint8(0), []byte(s))
	}
	hello := dpsConnect(d, "reg-1", e.PrimaryKey).Bytes()
	f.Add(uint8(1), hello)
	f.Add(uint8(1), append(append(append([]byte(nil), hello...), hubtest.SubscribeBytes(1, dpsAnswers+"#")...),
		hubtest.PublishBytes(1, 2, dpsRegister+"1", `{"registrationId":"reg-1"}`)...))
	f.Add(uint8(2), []byte("AMQP\x03\x01\x00\x00"))
	ports := [...]testbroker.Port{testbroker.PortHTTP, testbroker.PortMQTT, testbroker.PortAMQP}
	f.Fuzz(func(t *testing.T, port uint8, p []byte) {
		conn, err := d.Dial(ports[int(port)%len(ports)])(t.Context(), "tcp", "dps")
		require.NoError(t, err)
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		conn.Write(p)
		conn.(interface{ CloseWrite() error }).CloseWrite()
		_, err = io.Copy(io.Discard, conn)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	})
}
