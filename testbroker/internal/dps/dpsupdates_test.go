package dps_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

const updatesVersion = "2026-11-02-preview"

var tractor = updatedata.Update{
	ID:            updatedata.UpdateID{Provider: "Contoso", Name: "Tractor", Version: "1.1"},
	Compatibility: []map[string]string{{"manufacturer": "Contoso", "model": "Tractor"}},
	Steps: []updatedata.Step{{Handler: "microsoft/swupdate:1", Files: []string{"a.swu"},
		Properties: json.RawMessage(`{"installedCriteria":"1.1"}`)}},
	Files: []updatedata.File{{Name: "a.swu", Content: []byte(strings.Repeat("image ", 100))}},
}

const (
	firstCheck = `{"agentInfo":{"agentSdkVersion":"1.0.0","agentProfile":1,` +
		`"compatibilityProperties":{"Manufacturer":"contoso","model":"TRACTOR"}}}`
	success = `"outcome":"SUCCEEDED","failureOrigin":"NOT_APPLICABLE","resultCode":700,"extendedResultCodes":"0"`
	failure = `"outcome":"FAILED","failureOrigin":"AGENT_CORE","resultCode":5,"extendedResultCodes":"80000001"`
)

// report returns a report with a result and, unless empty, the result of the first step.
func report(workflow, result, step string) string {
	if step != "" {
		result += `,"stepResults":{"step_0":{` + step + `}}`
	}
	return fmt.Sprintf(`{"workflowId":%q,"installResult":{%s}}`, workflow, result)
}

// An updateAnswer is the answer to a check or a report over any protocol.
type updateAnswer struct {
	status     int
	retryAfter string
	header     http.Header // over HTTP
	body       string

	ServiceConfiguration *struct{ RootKeyDownloadURL string }
	ServiceConfigEtag    string
	AgentInfoEtag        string
	UpdateMetadata       *struct {
		WorkflowID, UpdateManifest, UpdateManifestSignature string
		FileURLs                                            map[string]string
	}
	ErrorCode int
	Message   string
	Info      *struct{ AduErrorCode, AduErrorTarget string }
}

// withUpdates makes a provisioning service with an update service and the registration reg-1.
func withUpdates(t testing.TB) (*testbroker.DPS, *testbroker.Updates, string) {
	d, _ := newDPS(t, nil)
	u, err := testbroker.NewUpdates(nil)
	require.NoError(t, err)
	d.LinkUpdates(u)
	require.NoError(t, u.Publish(tractor))
	return d, u, enroll(t, d, dpsdata.Enrollment{ID: "reg-1"}).PrimaryKey
}

// An updateClient sends a request about updates of the registration reg-1. It returns an error if
// there is no answer.
type updateClient func(operation, body string) (updateAnswer, error)

func (c updateClient) do(t testing.TB, operation, body string) updateAnswer {
	t.Helper()
	a, err := c(operation, body)
	require.NoError(t, err)
	return a
}

// updateClients returns a client of each protocol. Each call over MQTT makes a connection.
func updateClients(t testing.TB, d *testbroker.DPS, key, version string) map[hubdata.Protocol]updateClient {
	web := overDPS(t, d)
	web.Token = dpsToken(d, "reg-1", key)
	return map[hubdata.Protocol]updateClient{
		hubdata.HTTP: func(operation, body string) (a updateAnswer, err error) {
			r, err := web.Try("POST", "/"+testScope+"/registrations/reg-1/"+operation+"?api-version="+version, body)
			if err != nil {
				return a, err
			}
			json.Unmarshal([]byte(r.Text), &a)
			a.status, a.retryAfter, a.header, a.body = r.StatusCode, r.Header.Get("Retry-After"), r.Header, r.Text
			return a, nil
		},
		hubdata.MQTT: func(operation, body string) (a updateAnswer, err error) {
			w := dialDPS(t, d)
			c := dpsConnect(d, "reg-1", key)
			c.User = strings.Replace(c.User, "2019-03-31", version, 1)
			require.Equal(t, []byte{0, 0}, w.Connect(c))
			require.Equal(t, []byte{1}, w.Subscribe(1, dpsAnswers+"#"))
			w.Publish(1, "$dps/registrations/POST/"+operation+"/?$rid=1", body)
			w.Conn.SetReadDeadline(time.Now().Add(time.Minute))
			kind, packet := byte(4), []byte(nil)
			for kind == 4 && err == nil {
				kind, packet, err = w.Read()
			}
			if err != nil {
				return a, err
			}
			n := int(packet[0])<<8 | int(packet[1])
			topic := strings.TrimPrefix(string(packet[2:2+n]), dpsAnswers)
			_, a.retryAfter, _ = strings.Cut(topic, "&retry-after=")
			a.body = string(packet[4+n:])
			json.Unmarshal([]byte(a.body), &a)
			_, err = fmt.Sscanf(topic, "%d/?$rid=1", &a.status)
			return a, err
		},
	}
}

// eachProtocol runs a test over each protocol, on fake time.
func eachProtocol(t *testing.T, test func(t *testing.T, d *testbroker.DPS, u *testbroker.Updates, c updateClient)) {
	for _, protocol := range []hubdata.Protocol{hubdata.HTTP, hubdata.MQTT} {
		testkit.Run(t, protocol.String(), func(t *testing.T) {
			d, u, key := withUpdates(t)
			test(t, d, u, updateClients(t, d, key, updatesVersion)[protocol])
		})
	}
}

func deploy(t testing.TB, u *testbroker.Updates, d updatedata.Deployment) {
	t.Helper()
	d.Update = tractor.ID
	_, err := u.Deploy(d)
	require.NoError(t, err)
}

func TestAnUpdateFromTheOfferToTheLastReport(t *testing.T) {
	eachProtocol(t, func(t *testing.T, d *testbroker.DPS, u *testbroker.Updates, c updateClient) {
		a := c.do(t, "requestOnboardingUpdates", firstCheck)
		require.Equal(t, 200, a.status, a.body)
		require.Nil(t, a.UpdateMetadata, "nothing is deployed")
		require.Equal(t, "https://dps.example.test/updates/rootkeypackage-1.json", a.ServiceConfiguration.RootKeyDownloadURL)

		deploy(t, u, updatedata.Deployment{WorkflowID: "wf-1"})
		check := fmt.Sprintf(`{"agentInfoEtag":%q,"serviceConfigEtag":%q,"installedUpdateId":`+
			`{"provider":"Contoso","name":"Tractor","version":"1.0"}}`, a.AgentInfoEtag, a.ServiceConfigEtag)
		for _, name := range []string{"requestSoftwareUpdates", "iotdps-get-deviceupdate", "REQUESTSOFTWAREUPDATES"} {
			b := c.do(t, name, check)
			require.Equal(t, 200, b.status, b.body)
			require.Nil(t, b.ServiceConfiguration, "the etag is current")
			require.Equal(t, a.AgentInfoEtag, b.AgentInfoEtag)
			require.Equal(t, "wf-1", b.UpdateMetadata.WorkflowID)
			require.Len(t, b.UpdateMetadata.FileURLs, 1)
			require.Equal(t, u.Sign([]byte(b.UpdateMetadata.UpdateManifest)), b.UpdateMetadata.UpdateManifestSignature)
		}
		progress := strings.ReplaceAll(success, "SUCCEEDED", "IN_PROGRESS")
		for _, body := range []string{report("wf-1", progress, ""), report("wf-1", success, success)} {
			for range 2 {
				a = c.do(t, "reportUpdateStatus", body)
				require.Equal(t, 200, a.status, a.body)
				require.Equal(t, "{}", a.body)
			}
		}
		require.Nil(t, c.do(t, "iotdps-get-deviceupdate", check).UpdateMetadata, "the device has finished")
		dev := u.Device("REG-1")
		require.Equal(t, 1, dev.Onboarding)
		require.Equal(t, 4, dev.Checks)
		require.Equal(t, "1.0", dev.Installed.Version)
		w := dev.Last()
		require.Equal(t, updatedata.OutcomeSucceeded, w.Outcome())
		require.Equal(t, 3, w.Offers)
		require.Equal(t, 2, w.Repeated)
		require.Len(t, w.Reports, 2)
		require.EqualValues(t, 700, w.Reports[1].Steps[0].Code)
		log := d.Requests()
		require.Equal(t, dpsdata.OperationReportUpdate, log[len(log)-2].Operation)
	})
}

// A strictRow is a request with what the answer has of info.aduErrorCode, info.aduErrorTarget and
// errorCode.
type strictRow struct{ name, body, want string }

func (row strictRow) refused(t *testing.T, operation string) {
	testkit.Run(t, row.name, func(t *testing.T) {
		d, u, key := withUpdates(t)
		deploy(t, u, updatedata.Deployment{WorkflowID: "wf-1"})
		c := updateClients(t, d, key, updatesVersion)[hubdata.HTTP]
		if operation == "reportUpdateStatus" {
			c.do(t, "requestSoftwareUpdates", firstCheck)
		}
		a := c.do(t, operation, row.body)
		require.NotNil(t, a.Info, a.body)
		require.Equal(t, row.want, fmt.Sprint(a.Info.AduErrorCode, " ", a.Info.AduErrorTarget, " ", a.ErrorCode), a.body)
		require.Equal(t, 400, a.status)
		require.Equal(t, a.Info.AduErrorCode, a.header.Get("x-ms-error-code"))
		require.Contains(t, a.body, `"timestampUtc":"2000-01-01T`)
	})
}

func TestChecksAreReadStrictly(t *testing.T) {
	info := func(sdk, profile, properties string) string {
		return fmt.Sprintf(`{"agentInfo":{"agentSdkVersion":%s,"agentProfile":%s,"compatibilityProperties":%s}}`,
			sdk, profile, properties)
	}
	with := func(members string) string { return strings.TrimSuffix(firstCheck, "}") + "," + members + "}" }
	const sdk, set = `"1.0"`, `{"model":"x"}`
	const properties = "INVALID_COMPATIBILITY_PROPERTIES agentInfo.compatibilityProperties 400002"
	for _, row := range []strictRow{
		{"no JSON", `{"a":`, "INVALID_REQUEST body 400003"},
		{"nothing", ``, "INVALID_REQUEST body 400003"},
		{"a member twice", with(`"x":[{"a":1,"a":2}]`), "INVALID_REQUEST body 400003"},
		{"first without", `{}`, "UNKNOWN_AGENT_INFO_VERSION agentInfo 400004"},
		{"unknown etag", with(`"agentInfoEtag":"x"`), "UNKNOWN_AGENT_INFO_VERSION agentInfoEtag 400004"},
		{"long etag", with(`"agentInfoEtag":"` + strings.Repeat("x", 129) + `"`), "INVALID_REQUEST agentInfoEtag 400000"},
		{"null etag", with(`"serviceConfigEtag":null`), "INVALID_REQUEST serviceConfigEtag 400000"},
		{"unknown config", with(`"serviceConfigEtag":"x"`), "OUTDATED_SERVICE_CONFIG serviceConfigEtag 400004"},
		{"no SDK version", info(`""`, "1", set), "INVALID_REQUEST agentInfo.agentSdkVersion 400000"},
		{"profile 0", info(sdk, "0", set), "UNSUPPORTED_AGENT_PROFILE agentInfo.agentProfile 400002"},
		{"profile as text", info(sdk, `"1"`, set), "INVALID_REQUEST agentInfo.agentProfile 400000"},
		{"no properties", info(sdk, "1", `{}`), properties},
		{"six properties", info(sdk, "1", `{"a":"","b":"","c":"","d":"","e":"","f":""}`), properties},
		{"an empty name", info(sdk, "1", `{"":"x"}`), properties},
		{"a name twice", info(sdk, "1", `{"a":"x","A":"x"}`), properties},
		{"null installed", with(`"installedUpdateId":null`), "INVALID_REQUEST installedUpdateId 400000"},
		{"part of an id", with(`"installedUpdateId":{"provider":"a","name":"b"}`),
			"INVALID_REQUEST installedUpdateId.version 400000"},
		{"version of a word", with(`"installedUpdateId":{"provider":"a","name":"b","version":"x"}`),
			"INVALID_REQUEST installedUpdateId 400000"},
	} {
		row.refused(t, "requestSoftwareUpdates")
	}
	without := strictRow{"onboarding", `{"agentInfoEtag":"x"}`, "INVALID_REQUEST agentInfo 400000"}
	without.refused(t, "requestOnboardingUpdates")
}

func TestReportsAreReadStrictly(t *testing.T) {
	running := strings.Replace(success, "SUCCEEDED", "IN_PROGRESS", 1)
	wrong := func(of, old, other string) string { return report("wf-1", strings.Replace(of, old, other, 1), "") }
	for _, row := range []strictRow{
		{"unknown workflow", report("wf-9", success, ""), "UNKNOWN_WORKFLOW_ID workflowId 400000"},
		{"long workflow", report(strings.Repeat("x", 129), success, ""), "INVALID_REQUEST workflowId 400000"},
		{"no result", `{"workflowId":"wf-1"}`, "INVALID_REQUEST installResult 400000"},
		{"another outcome", wrong(success, "SUCCEEDED", "DONE"), "INVALID_REQUEST installResult.outcome 400000"},
		{"blame", wrong(success, "NOT_APPLICABLE", "DEVICE"), "INVALID_REQUEST installResult.failureOrigin 400000"},
		{"no blame", wrong(failure, "AGENT_CORE", "NOT_APPLICABLE"), "INVALID_REQUEST installResult.failureOrigin 400000"},
		{"null code", wrong(success, `"0"`, "null"), "INVALID_REQUEST installResult.extendedResultCodes 400000"},
		{"decimal code", wrong(success, `"0"`, `"-1"`), "INVALID_REQUEST installResult.extendedResultCodes 400000"},
		{"no results", strings.Replace(report("wf-1", failure, failure), `"step_0"`, `"step_1"`, 1),
			"INVALID_REQUEST installResult.stepResults.step_0 400012"},
		{"half a step", report("wf-1", success, `"resultCode":700,"extendedResultCodes":"0"`),
			"INVALID_REQUEST installResult.stepResults.step_0.outcome 400012"},
		{"an open step", report("wf-1", success, running),
			"INVALID_REQUEST installResult.stepResults.step_0.outcome 400012"},
		{"two steps", report("wf-1", success, success+`},"step_1":{`+success),
			"INVALID_REQUEST installResult.stepResults 400012"},
		{"steps as it runs", report("wf-1", running, success), "INVALID_REQUEST installResult.stepResults 400000"},
	} {
		row.refused(t, "reportUpdateStatus")
	}
}

func TestOutdatedEtagsAreRefused(t *testing.T) {
	eachProtocol(t, func(t *testing.T, d *testbroker.DPS, u *testbroker.Updates, c updateClient) {
		old := c.do(t, "requestSoftwareUpdates", firstCheck)
		other := strings.Replace(firstCheck, "TRACTOR", "Harvester", 1)
		require.NotEqual(t, old.AgentInfoEtag, c.do(t, "requestSoftwareUpdates", other).AgentInfoEtag)
		outdated := fmt.Sprintf(`{"agentInfoEtag":%q}`, old.AgentInfoEtag)
		require.Equal(t, "OUTDATED_AGENT_INFO", c.do(t, "requestSoftwareUpdates", outdated).Info.AduErrorCode)
		require.Equal(t, 200, c.do(t, "requestSoftwareUpdates", firstCheck).status)
		require.Equal(t, 200, c.do(t, "requestSoftwareUpdates", outdated).status)

		u.RotateRoot()
		a := c.do(t, "requestSoftwareUpdates", fmt.Sprintf(`{"agentInfoEtag":%q,"serviceConfigEtag":%q}`,
			old.AgentInfoEtag, old.ServiceConfigEtag))
		require.Contains(t, a.ServiceConfiguration.RootKeyDownloadURL, "rootkeypackage-2.json")
		require.NotEqual(t, old.ServiceConfigEtag, a.ServiceConfigEtag)
	})
}

func TestAnotherFinalReportIsAConflict(t *testing.T) {
	succeeded, failed := report("wf-1", success, ""), report("wf-1", failure, "")
	skipped := strings.Replace(succeeded, "SUCCEEDED", "SKIPPED", 1)
	for name, row := range map[string]struct {
		first, second string
		conflict      bool
	}{
		"the same again":       {failed, failed, false},
		"with steps later":     {succeeded, report("wf-1", success, success), true},
		"skipped after":        {succeeded, skipped, false},
		"failed after":         {succeeded, failed, true},
		"another failure":      {failed, strings.Replace(failed, "5", "6", 1), true},
		"progress after":       {succeeded, strings.Replace(succeeded, "SUCCEEDED", "IN_PROGRESS", 1), true},
		"skipped after a fail": {failed, skipped, true},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			d, u, key := withUpdates(t)
			deploy(t, u, updatedata.Deployment{WorkflowID: "wf-1"})
			c := updateClients(t, d, key, updatesVersion)[hubdata.HTTP]
			c.do(t, "requestSoftwareUpdates", firstCheck)
			require.Equal(t, 200, c.do(t, "reportUpdateStatus", row.first).status)
			a := c.do(t, "reportUpdateStatus", row.second)
			if !row.conflict {
				require.Equal(t, 200, a.status, a.body)
				return
			}
			require.Equal(t, 409, a.status, a.body)
			require.Equal(t, 409000, a.ErrorCode)
			require.Equal(t, "REPORT_CONFLICT", a.Info.AduErrorCode)
		})
	}
}

func TestDeploymentsChooseDevices(t *testing.T) {
	for name, row := range map[string]struct {
		deployment updatedata.Deployment
		offered    bool
	}{
		"all":                {updatedata.Deployment{}, true},
		"by id":              {updatedata.Deployment{Devices: []string{"reg-2", "REG-1"}}, true},
		"another id":         {updatedata.Deployment{Devices: []string{"reg-2"}}, false},
		"by property":        {updatedata.Deployment{Properties: map[string]string{"MODEL": "tractor"}}, true},
		"another property":   {updatedata.Deployment{Properties: map[string]string{"model": "Harvester"}}, false},
		"an unknown one":     {updatedata.Deployment{Properties: map[string]string{"colour": "red"}}, false},
		"first percent":      {updatedata.Deployment{Percent: 1}, false},
		"nearly all percent": {updatedata.Deployment{Percent: 99}, true},
		"again and again":    {updatedata.Deployment{KeepOffering: true}, true},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			d, u, key := withUpdates(t)
			row.deployment.WorkflowID = "wf-1"
			deploy(t, u, row.deployment)
			c := updateClients(t, d, key, updatesVersion)[hubdata.HTTP]
			require.Equal(t, row.offered, c.do(t, "requestSoftwareUpdates", firstCheck).UpdateMetadata != nil)
			if row.offered {
				require.Equal(t, 200, c.do(t, "reportUpdateStatus", report("wf-1", success, "")).status)
			}
			require.Equal(t, row.deployment.KeepOffering,
				c.do(t, "requestSoftwareUpdates", firstCheck).UpdateMetadata != nil, "after the end")
			require.NoError(t, u.Withdraw("wf-1"))
			require.Nil(t, c.do(t, "requestSoftwareUpdates", firstCheck).UpdateMetadata)
		})
	}
}

func TestUpdatesNeedTheirVersionAndAnUpdateService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, u, key := withUpdates(t)
		bare, _ := newDPS(t, nil)
		bareKey := enroll(t, bare, dpsdata.Enrollment{ID: "reg-1"}).PrimaryKey
		future := updateClients(t, d, key, "2099-01-01")[hubdata.HTTP].do(t, "requestSoftwareUpdates", firstCheck)
		require.Equal(t, "UNSUPPORTED_API_VERSION", future.Info.AduErrorCode)
		for _, protocol := range []hubdata.Protocol{hubdata.HTTP, hubdata.MQTT} {
			a := updateClients(t, d, key, "2026-11-01")[protocol].do(t, "requestSoftwareUpdates", firstCheck)
			require.Equal(t, "UNSUPPORTED_API_VERSION", a.Info.AduErrorCode, protocol)
			a = updateClients(t, bare, bareKey, updatesVersion)[protocol].do(t, "requestSoftwareUpdates", firstCheck)
			require.Equal(t, 409, a.status)
			require.Equal(t, "UPDATE_ACCOUNT_NOT_LINKED", a.Info.AduErrorCode, protocol)
		}
		require.NoError(t, d.SetEnabled("reg-1", false))
		a := updateClients(t, d, key, updatesVersion)[hubdata.HTTP].do(t, "requestSoftwareUpdates", firstCheck)
		require.Equal(t, 403001, a.ErrorCode)
		a = updateClients(t, d, bareKey, updatesVersion)[hubdata.HTTP].do(t, "requestSoftwareUpdates", firstCheck)
		require.Equal(t, 401002, a.ErrorCode)
		require.Empty(t, u.Devices())
	})
}

func TestUpdatesOfDevicesWithCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, u, _ := withUpdates(t)
		own := testbroker.NewClientCert("reg-own", time.Time{}, time.Time{})
		enroll(t, d, dpsdata.Enrollment{ID: "reg-own", Certificates: []*x509.Certificate{own.Leaf}})
		deploy(t, u, updatedata.Deployment{Devices: []string{"reg-own"}})
		config := d.ClientTLS()
		config.Certificates = []tls.Certificate{own}
		p := hubtest.NewPoster(t, d.Dial(testbroker.PortHTTPS), config, "")
		p.Base = "https://" + d.HostName()
		r := p.Post("/"+testScope+"/registrations/reg-own/requestSoftwareUpdates?api-version="+updatesVersion, firstCheck)
		require.Equal(t, 200, r.StatusCode, r.Text)
		require.Contains(t, r.Text, "updateManifest")
	})
}
