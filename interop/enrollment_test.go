package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsamqp"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/provisioning/dpsmqtt"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"

	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/websocket"
)

// startProvisioningBackEnd starts the official provisioning SDK for back ends.
func startProvisioningBackEnd(t testing.TB, dps *testbroker.DPS) *backEnd {
	policy, err := dps.AddPolicy("provisioningserviceowner")
	require.NoError(t, err)
	b := &backEnd{startScript(t, "service.js", trusting(t, dps)), nil}
	web, err := dps.Listen(testbroker.PortHTTPS, "127.0.0.1:0")
	require.NoError(t, err)
	b.tell(map[string]any{
		"do": "openProvisioning", "connectionString": policy.ConnectionString(),
		"forward": [][]int{{443, web.(*net.TCPAddr).Port}},
	})
	b.next("done", "")
	return b
}

// pages returns the ids in the answers of a query.
func (b *backEnd) pages(member, method string, args ...any) (all [][]string) {
	b.t.Helper()
	b.tell(map[string]any{"do": "make", "name": "query", "method": method, "args": args})
	b.next("done", "")
	for more := 1; more != 0; {
		b.tell(map[string]any{"do": "page", "name": "query"})
		e := b.next("page", "query")
		require.Empty(b.t, e.Text)
		var page []object
		require.NoError(b.t, json.Unmarshal([]byte(e.Payload), &page))
		var ids []string
		for _, one := range page {
			ids = append(ids, fmt.Sprint(one[member]))
		}
		all, more = append(all, ids), e.Count
		require.Less(b.t, len(all), 20)
	}
	return all
}

func TestServiceSDKEnrolls(t *testing.T) {
	t.Parallel()
	dps := openDPS(t)
	b := startProvisioningBackEnd(t, dps)
	call := func(method string, args ...any) object {
		t.Helper()
		return b.call("provisioning", method, args...)
	}
	keys := object{"type": "symmetricKey"}
	made := call("createOrUpdateIndividualEnrollment", object{"registrationId": "reg-1", "attestation": keys,
		"deviceId": "device-1", "iotHubHostName": hubA, "provisioningStatus": "enabled",
		"initialTwin":       object{"tags": object{"site": "Köln"}, "properties": object{"desired": object{"n": 1}}},
		"reprovisionPolicy": object{"updateHubAssignment": true, "migrateDeviceData": false}})
	e, err := dps.Enrollment("reg-1")
	require.NoError(t, err)
	require.Equal(t, e.PrimaryKey, made.at("attestation", "symmetricKey", "primaryKey"))
	require.Equal(t, []string{hubA}, e.Hubs)
	require.Equal(t, `{"site":"Köln"}`, e.Tags)
	read := call("getIndividualEnrollment", "reg-1")
	require.Equal(t, made["etag"], read["etag"])
	require.Nil(t, read.at("attestation", "symmetricKey"))
	require.Equal(t, e.SecondaryKey,
		call("getIndividualEnrollmentAttestationMechanism", "reg-1").at("symmetricKey", "secondaryKey"))
	read["provisioningStatus"] = "disabled"
	changed := call("createOrUpdateIndividualEnrollment", read)
	require.NotEqual(t, read["etag"], changed["etag"])
	after, err := dps.Enrollment("reg-1")
	require.NoError(t, err)
	require.True(t, after.Disabled)
	require.Equal(t, e.PrimaryKey, after.PrimaryKey)
	b.refused("InvalidEtagError", "provisioning", "createOrUpdateIndividualEnrollment", read)
	b.refused("DeviceAlreadyExistsError", "provisioning", "createOrUpdateIndividualEnrollment",
		object{"registrationId": "reg-1", "attestation": keys})
	b.refused("ArgumentError", "provisioning", "createOrUpdateIndividualEnrollment",
		object{"registrationId": "reg-2", "attestation": object{"type": "none"}})
	b.refused("InvalidEtagError", "provisioning", "deleteIndividualEnrollment", read)
	b.call("provisioning", "deleteIndividualEnrollment", changed)
	b.refused("Not found", "provisioning", "getIndividualEnrollment", "reg-1")
	seen(t, "an enrollment: made with new keys, read, changed and deleted with its etag; refusals have the right classes")

	ca := newAuthority(t)
	cert := object{"primary": object{"certificate": string(certPEM(ca.cert))}}
	for id, proof := range map[string]object{
		"certs": {"type": "x509", "x509": object{"signingCertificates": cert}}, "keys": keys,
	} {
		group := call("createOrUpdateEnrollmentGroup", object{"enrollmentGroupId": id, "attestation": proof})
		require.Equal(t, group["etag"], call("getEnrollmentGroup", id)["etag"])
	}
	require.NotEmpty(t, call("getEnrollmentGroupAttestationMechanism", "keys").at("symmetricKey", "primaryKey"))
	require.Equal(t, [][]string{{"certs"}, {"keys"}},
		b.pages("enrollmentGroupId", "createEnrollmentGroupQuery", object{"query": "*"}, 1))
	seen(t, "groups: by key and by an authority's certificate, read, and listed in two pages")

	bulk := func(mode string, all ...object) object {
		t.Helper()
		return call("runBulkEnrollmentOperation", object{"mode": mode, "enrollments": all})
	}
	var five []object
	for n := range 5 {
		five = append(five, object{"registrationId": fmt.Sprint("bulk-", n), "attestation": keys})
	}
	done := object{"isSuccessful": true, "errors": []any{}}
	require.Equal(t, done, bulk("create", five...))
	require.Equal(t, [][]string{{"bulk-0", "bulk-1"}, {"bulk-2", "bulk-3"}, {"bulk-4"}},
		b.pages("registrationId", "createIndividualEnrollmentQuery", object{"query": "*"}, 2))
	five[0]["provisioningStatus"] = "disabled"
	require.Equal(t, done, bulk("update", five[0]))
	require.Equal(t, "disabled", call("getIndividualEnrollment", "bulk-0")["provisioningStatus"])
	failed := bulk("updateIfMatchEtag", object{"registrationId": "bulk-1", "attestation": keys, "etag": "x"},
		call("getIndividualEnrollment", "bulk-2"))
	require.Equal(t, false, failed["isSuccessful"])
	require.Len(t, failed["errors"], 1)
	require.Equal(t, "bulk-1", failed["errors"].([]any)[0].(map[string]any)["registrationId"])
	require.Equal(t, done, bulk("delete", five...))
	seen(t, "bulk operations: 5 made, listed in three pages, changed, changed with an etag (1 of 2 refused), deleted")
}

// Back end: the official SDK. Device: Hubline, over each carrier.
func TestServiceSDKEnrollsHubline(t *testing.T) {
	t.Parallel()
	dps := openDPS(t)
	hub := hubfixture.Open(t, &testbroker.Options{HostName: hubA})
	require.NoError(t, dps.Link(hub))
	b := startProvisioningBackEnd(t, dps)
	group := b.call("provisioning", "createOrUpdateEnrollmentGroup",
		object{"enrollmentGroupId": "grp", "attestation": object{"type": "symmetricKey"}})
	groupKey := group.at("attestation", "symmetricKey", "primaryKey").(string)
	network := func(port testbroker.Port, tunnel netopt.Tunnel) *netopt.Options {
		return &netopt.Options{Dial: dps.Dial(port), TLS: dps.ClientTLS(), Tunnel: tunnel}
	}
	carriers := map[string]provisioning.Carrier{
		"mqtt":    dpsmqtt.New(network(testbroker.PortMQTTS, nil)),
		"mqtt-ws": dpsmqtt.New(network(testbroker.PortHTTPS, websocket.MQTT(nil))),
		"amqp":    dpsamqp.New(network(testbroker.PortAMQPS, nil)),
		"amqp-ws": dpsamqp.New(network(testbroker.PortHTTPS, websocket.AMQP(nil))),
		"http":    dpshttp.New(network(testbroker.PortHTTPS, nil)),
	}
	var all sync.WaitGroup
	register := func(carrier provisioning.Carrier, id string, sign func(context.Context, []byte) ([]byte, error)) {
		t.Helper()
		c, err := provisioning.New(&provisioning.Identity{
			Endpoint: dps.HostName(), IDScope: dps.IDScope(), RegistrationID: id, Sign: sign,
		}, carrier, nil)
		require.NoError(t, err)
		ctx := soon(t)
		all.Go(func() {
			a, err := c.Register(ctx)
			if assert.NoError(t, err, id) {
				assert.Equal(t, []string{hubA, id}, []string{a.Hub, a.DeviceID})
			}
		})
	}
	var derived []string
	for name, carrier := range carriers {
		one := b.call("provisioning", "createOrUpdateIndividualEnrollment",
			object{"registrationId": "own-" + name, "attestation": object{"type": "symmetricKey"}})
		sign, err := transport.SharedKey(one.at("attestation", "symmetricKey", "primaryKey").(string))
		require.NoError(t, err)
		register(carrier, "own-"+name, sign)
		sign, err = provisioning.GroupKey(groupKey, "derived-"+name)
		require.NoError(t, err)
		register(carrier, "derived-"+name, sign)
		derived = append(derived, "derived-"+name)
	}
	all.Wait()
	state := b.call("provisioning", "getDeviceRegistrationState", "own-mqtt")
	require.Equal(t, "assigned", state["status"])
	require.Equal(t, hubA, state["assignedHub"])
	require.Equal(t, map[string]any(state), b.call("provisioning", "getIndividualEnrollment",
		"own-mqtt")["registrationState"])
	pages := b.pages("registrationId", "createEnrollmentGroupDeviceRegistrationStateQuery", object{"query": "*"}, "grp", 2)
	require.Len(t, pages, (len(derived)+1)/2)
	var listed []string
	for _, page := range pages {
		listed = append(listed, page...)
	}
	require.ElementsMatch(t, derived, listed)
	b.refused("InvalidEtagError", "provisioning", "deleteDeviceRegistrationState", object{"registrationId": "own-mqtt",
		"etag": "x"})
	b.call("provisioning", "deleteDeviceRegistrationState", state)
	b.refused("Not found", "provisioning", "getDeviceRegistrationState", "own-mqtt")
	require.Len(t, hub.Devices(), 2*len(carriers))
	seen(t, "Hubline registers over %d carriers with enrollments of the SDK, which reads, lists and deletes the states",
		len(carriers))
}
