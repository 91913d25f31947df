package hubhttp

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

func retryable(v Verdict) bool { return errfilter.OfKind(v.Kind).Retry }

// Each status has a row, and its fields are consistent: transient failures are retryable, others
// are not.
func TestEachStatusHasARow(t *testing.T) {
	for status := 100; status < 600; status++ {
		v := VerdictOfStatus(status)
		require.NotEmpty(t, v.Reason, status)
		require.NotEqual(t, statuscode.Fine, v.About, status)
		require.Equal(t, v.About == statuscode.Moment, retryable(v), "%d: %v", status, v)
		if status >= 500 && http.StatusText(status) == "" {
			require.Equal(t, transport.Unavailable, v.Kind, status)
		}
		if status/100 == 4 {
			require.Equal(t, http.StatusText(status) == "" && status != 499 || status == 418, v.Kind == transport.Unknown,
				"%d is %v, which the registry knows as %q", status, v.Kind, http.StatusText(status))
		}
	}
	for _, status := range []int{-1, 0, 99, 600, math.MaxInt} {
		require.Equal(t, transport.Protocol, VerdictOfStatus(status).Kind)
	}
}

// published are the hub's codes in the service's documentation, with whether a device may retry:
// "T" yes, "A" after renewing its credentials, "-" no.
const published = `
400000 GenericBadRequest -
400001 InvalidProtocolVersion -
400002 DeviceInvalidResultCount -
400003 InvalidOperation -
400004 ArgumentInvalid -
400005 ArgumentNull -
400006 IotHubFormatError -
400007 DeviceStorageEntitySerializationError -
400008 BlobContainerValidationError -
400009 ImportWarningExistsError -
400010 InvalidSchemaVersion -
400011 DeviceDefinedMultipleTimes -
400012 DeserializationError -
400013 BulkRegistryOperationFailure -
400014 DefaultStorageEndpointNotConfigured -
400015 InvalidFileUploadCorrelationId -
400016 ExpiredFileUploadCorrelationId -
400017 InvalidStorageEndpoint -
400018 InvalidMessagingEndpoint -
400019 InvalidFileUploadCompletionStatus -
400020 InvalidStorageEndpointOrBlob -
400021 RequestCanceled T
400022 InvalidStorageEndpointProperty -
400023 EtagDoesNotMatch -
400024 RequestTimedOut T
400025 UnsupportedOperationOnReplica -
400026 NullMessage -
400027 ConnectionForcefullyClosedOnNewConnection T
400028 InvalidDeviceScope -
400029 ConnectionForcefullyClosedOnFaultInjection T
400030 ConnectionRejectedOnFaultInjection T
400031 InvalidEndpointAuthenticationType -
400032 ManagedIdentityNotEnabled -
400035 InvalidPolicyKey -
400036 BulkRegenerateDeviceKeyOperationFailure -
400100 InvalidRouteTestInput -
400101 InvalidSourceOnRoute -
400102 RoutingNotEnabled -
400103 InvalidContentEncodingOrType -
400301 CannotRegisterModuleToModule -
400302 TenantHubRoutingNotEnabled -
400401 InvalidConfigurationTargetCondition -
400402 InvalidConfigurationContent -
400403 CannotModifyImmutableConfigurationContent -
400404 InvalidConfigurationCustomMetricsQuery -
400501 InvalidPnPInterfaceDefinition -
400502 InvalidPnPDesiredProperties -
400503 InvalidPnPReportedProperties -
400504 InvalidPnPWritableReportedProperties -
400505 InvalidDigitalTwinJsonPatch -
400506 InvalidDigitalTwinPayload -
400507 InvalidDigitalTwinPatch -
400508 InvalidDigitalTwinPatchPath -
401000 GenericUnauthorized A
401001 IotHubNotFound -
401002 IotHubUnauthorizedAccess A
401003 IotHubUnauthorized A
401004 ElasticPoolNotFound -
401100 SystemModuleModifyUnauthorizedAccess -
403000 GenericForbidden -
403001 IotHubSuspended -
403002 IotHubQuotaExceeded Q
403003 JobQuotaExceeded Q
403004 DeviceMaximumQueueDepthExceeded T
403005 IotHubMaxCbsTokenExceeded Q
403006 DeviceMaximumActiveFileUploadLimitExceeded T
403007 DeviceMaximumQueueSizeExceeded T
403008 RoutingEndpointResponseForbidden -
403009 InvalidMessageExpiryTime -
403010 OperationNotAvailableInCurrentTier -
403011 KeyEncryptionKeyRevoked -
403012 DeviceDisabled -
403100 DeviceModelMaxPropertiesExceeded -
403101 DeviceModelMaxIndexablePropertiesExceeded -
403800 DeviceMaximumInflightMethodExceeded T
404000 GenericNotFound -
404001 DeviceNotFound -
404002 JobNotFound -
404004 QuotaMetricNotFound -
404005 SystemPropertyNotFound -
404006 AmqpAddressNotFound -
404007 RoutingEndpointResponseNotFound -
404008 CertificateNotFound -
404009 ElasticPoolTenantHubNotFound -
404010 ModuleNotFound -
404011 AzureTableStoreNotFound -
404012 IotHubFailingOver T
404013 FeatureNotSupported -
404014 DigitalTwinInterfaceNotFound -
404101 QueryStoreClusterNotFound -
404103 DeviceNotOnline T
404104 DeviceConnectionClosedRemotely T
404301 ConfigurationNotFound -
404302 GroupNotFound -
404401 DigitalTwinModelNotFound -
404402 InterfaceNameModelNotFound -
405000 GenericMethodNotAllowed -
405102 OperationNotAllowedInCurrentState -
405103 ImportDevicesNotSupported -
405104 BulkAddDevicesNotSupported -
409000 GenericConflict -
409001 DeviceAlreadyExists -
409002 LinkCreationConflict T
409003 CallbackSubscriptionConflict T
409101 ModelAlreadyExists -
409102 DeviceLocked -
409103 DeviceJobAlreadyExists -
409104 JobAlreadyExists -
409301 ModuleAlreadyExistsOnDevice -
409401 ConfigurationAlreadyExists -
409402 ApplyConfigurationAlreadyInProgressOnDevice -
409501 DigitalTwinModelAlreadyExists -
409502 DigitalTwinModelExistsWithOtherModelType -
409503 InterfaceNameModelAlreadyExists -
412000 GenericPreconditionFailed -
412001 PreconditionFailed -
412002 DeviceMessageLockLost -
412003 JobRunPreconditionFailed -
412004 InflightMessagesInLink -
413000 GenericRequestEntityTooLarge -
413001 MessageTooLarge -
413002 TooManyDevices -
413003 TooManyModulesOnDevice -
413101 ConfigurationCountLimitExceeded -
413201 DigitalTwinModelCountLimitExceeded -
413202 InterfaceNameCompressionModelCountLimitExceeded -
415000 GenericUnsupportedMediaType -
415101 IncompatibleDataType -
429000 GenericTooManyRequests T
429001 ThrottlingException T
429002 ThrottleBacklogLimitExceeded T
429003 ThrottlingBacklogTimeout T
429004 ThrottlingMaxActiveJobCountExceeded T
429005 DeviceThrottlingLimitExceeded T
499000 ClientClosedRequest T
500001 ServerError T
500002 JobCancelled -
500008 GenericTimeout T
500009 InvalidThrottleParameter T
500301 ? T
500302 ? T
500401 ? T
500402 ? T
500403 ? T
500501 ? T
500502 ? T
500503 ? T
500504 ? T
500505 ? T
502000 GenericBadGateway T
503000 GenericServiceUnavailable T
503001 ServiceUnavailable T
503003 PartitionNotFound T
503004 IotHubActivationFailed T
503005 ServerBusy T
503006 IotHubRestoring T
503008 ReceiveLinkOpensThrottled T
504101 GatewayTimeout T
`

// Each code of the service has a row under its name, and is retryable if the service says so. For
// "Q", an exhausted quota, we retry slowly: one day's quota is no reason to drop messages from an
// outbox.
func TestEachCodeOfTheServiceHasARow(t *testing.T) {
	n := 0
	for line := range strings.Lines(strings.TrimSpace(published)) {
		f := strings.Fields(line)
		code, err := strconv.Atoi(f[0])
		require.NoError(t, err)
		row, listed := codeTable[code]
		require.True(t, listed, code)
		if f[1] != "?" {
			require.Equal(t, f[1], row.name)
		}
		v := row.verdict()
		require.NotEmpty(t, v.Reason, code)
		require.NotEqual(t, statuscode.Fine, v.About, code)
		require.Equal(t, f[2] == "T" || f[2] == "Q", retryable(v), "%s: %v", line, v)
		require.Equal(t, retryable(v), v.About == statuscode.Moment, code)
		require.Equal(t, f[2] == "A", v.Kind == transport.Unauthorized && code != 401004 && code != 401100, code)
		n++
	}
	require.Equal(t, len(codes), n+2,
		"rows that the service does not publish: 404102 (which its documents print for 404103) and 504000")
	require.Len(t, codeTable, len(codes), "a code is listed twice")
}

// For each status, whether the official SDKs retry, from their tables. The last column states where
// we differ and why.
func TestStatusesOfTheOfficialSDKs(t *testing.T) {
	const yes, no = true, false
	for _, row := range []struct {
		status             int
		java, csharp, node bool
		kind               transport.Kind
		retry              bool
		why                string
	}{
		{301, no, no, no, transport.Protocol, no, ""}, // and other 2xx and 3xx: a hub sends none
		{302, no, no, no, transport.Protocol, no, ""},
		{307, no, no, no, transport.Protocol, no, ""},
		{400, no, no, no, transport.Invalid, no, ""},
		{401, no, no, no, transport.Unauthorized, no, ""},
		{403, no, yes, no, transport.Quota, yes, "a quota comes back; slowly"},
		{404, no, no, no, transport.NotFound, no, ""},
		{408, no, yes, no, transport.Timeout, yes, "the next try may be faster"},
		{409, no, no, no, transport.Conflict, no, ""},
		{412, no, no, no, transport.Conflict, no, ""},
		{413, no, no, no, transport.TooLarge, no, ""},
		{429, yes, yes, no, transport.Throttled, yes, "that is what 429 is for"},
		{500, yes, yes, yes, transport.Unavailable, yes, ""},
		{502, no, no, no, transport.Unavailable, yes, "a gateway whose server restarts"},
		{503, yes, yes, yes, transport.Unavailable, yes, ""},
		{504, no, no, no, transport.Timeout, yes, "a gateway whose server is slow"},
		{405, no, no, no, transport.Unsupported, no, ""}, // and any other 4xx
		{410, no, no, no, transport.NotFound, no, ""},
		{415, no, no, no, transport.Unsupported, no, ""},
		{418, no, no, no, transport.Unknown, no, ""},
		{422, no, no, no, transport.Invalid, no, ""},
		{501, no, no, no, transport.Unsupported, no, ""},
		{507, no, no, no, transport.Quota, yes, "an allowance comes back"},
		{599, no, no, no, transport.Unavailable, yes, "what the service has no name for passes, too"},
	} {
		v := VerdictOfStatus(row.status)
		require.Equal(t, row.kind, v.Kind, row.status)
		require.Equal(t, row.retry, retryable(v), row.status)
		if row.java == row.retry && row.csharp == row.retry && row.node == row.retry {
			continue
		}
		require.NotEmpty(t, row.why, "%d: a difference without a reason", row.status)
	}
	// Successes. The Java SDK recognizes two, and treats all others as service errors; C# treats 204
	// as a device that does not exist; Node accepts all below 300.
	for status := 200; status < 300; status++ {
		require.Equal(t, status == 204, IsFine(status), status)
		require.Equal(t, Verdict{transport.Protocol, statuscode.Identity, noHub}, VerdictOfStatus(status), status)
	}
}

// A web page comes from a proxy, a captive portal or another server. Its status says nothing about
// the hub, the device or the message; only those of a busy server and of a message that is too
// large for the proxy keep their meaning.
func TestAWebPageIsNoHubsAnswer(t *testing.T) {
	page := http.Header{"Content-Type": {"Text/HTML; charset=utf-8"}}
	body := []byte("<html>sign in to the network</html>")
	for _, status := range []int{200, 302, 400, 401, 403, 404, 405, 409, 412, 415, 422} {
		e, v := ReadAnswer(status, page, body)
		require.Equal(t, Verdict{transport.Protocol, statuscode.Identity, noHub}, v, status)
		require.ErrorContains(t, e, "peer answered")
		require.NotContains(t, e.Error(), "html")
	}
	for status, kind := range map[int]transport.Kind{
		413: transport.TooLarge, 414: transport.TooLarge, 429: transport.Throttled, 431: transport.TooLarge,
		503: transport.Unavailable, 511: transport.Network,
	} {
		e, v := ReadAnswer(status, page, body)
		require.Equal(t, kind, v.Kind, status)
		require.ErrorContains(t, e, "may be a proxy's")
	}
	page.Set("iothub-errorcode", "DeviceNotFound")
	e, v := ReadAnswer(404, page, body)
	require.Equal(t, transport.NotFound, v.Kind)
	require.ErrorContains(t, e, "hub answered 404")
}

// answer is the expected result of Read.
type answer struct {
	status, code              int
	name, message, trackingID string
}

func TestReadingAnAnswer(t *testing.T) {
	inner := func(v map[string]any) string {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		outer, err := json.Marshal(map[string]string{"Message": string(text), "ExceptionMessage": ""})
		require.NoError(t, err)
		return string(outer)
	}
	const name, id = "iothub-errorcode", "x-ms-request-id"
	for _, row := range []struct {
		what   string
		status int
		header map[string]string
		body   string
		want   answer
	}{
		{"JSON in JSON", 404, map[string]string{name: "DeviceNotFound"}, inner(map[string]any{"errorCode": 404001,
			"trackingId": "abc-1", "message": "no such device", "timestampUtc": "2030-01-01T00:00:00Z"}),
			answer{404, 404001, "DeviceNotFound", "no such device", "abc-1"}},
		{"the code as text", 404, nil, inner(map[string]any{"errorCode": "404001", "message": "x"}), answer{404, 404001,
			"DeviceNotFound", "x", ""}},
		{"the older text", 404, nil,
			`{"Message":"ErrorCode:DeviceNotFound;no such device","ExceptionMessage":"Tracking ID:abc-1-TimeStamp:01/01/2030"}`,
			answer{404, 404001, "DeviceNotFound", "no such device", "abc-1-TimeStamp:01/01/2030"}},
		{"the header alone", 429, map[string]string{name: "ThrottlingException", id: "r-1"}, "", answer{429, 429001,
			"ThrottlingException", "", "r-1"}},
		{"no words", 503, nil, "", answer{503, 0, "", "", ""}},
		{"a page of a gateway's", 502, map[string]string{"Content-Type": "text/html"}, "<html>Authorization: secret</html>",
			answer{502, 0,
				"", "", ""}},
		{"a code of another status that is known", 400, nil, inner(map[string]any{"errorCode": 429001, "message": "x"}),
			answer{400, 429001,
				"ThrottlingException", "x", ""}},
		{"a code that cannot be", 400, nil, inner(map[string]any{"errorCode": 12, "message": "x"}),
			answer{400, 0, "", "x", ""}},
		{"a new code", 400, nil, inner(map[string]any{"errorCode": 400999, "message": "x"}), answer{400, 400999, "", "x",
			""}},
		{"a name that nobody knows", 400, map[string]string{name: "New\r\nThing"}, "", answer{400, 0, `New\r\nThing`, "",
			""}},
		{"plain text in JSON", 400, nil, `{"Message":"bad"}`, answer{400, 0, "", "bad", ""}},
		{"no JSON", 400, nil, `bad`, answer{400, 0, "", "", ""}},
	} {
		t.Run(row.what, func(t *testing.T) {
			header := http.Header{}
			for k, v := range row.header {
				header.Set(k, v)
			}
			e, _ := ReadAnswer(row.status, header, []byte(row.body))
			require.Equal(t, row.want, answer{e.Status, e.Code, e.Name, e.Message, e.TrackingID})
		})
	}
}

// The hub's text is untrusted.
func FuzzRead(f *testing.F) {
	f.Add(404, "DeviceNotFound", `{"Message":"{\"errorCode\":404001}"}`)
	f.Add(400, "", `{"Message":"ErrorCode:X;y","ExceptionMessage":"Tracking ID:z"}`)
	f.Add(999, "sig=abc", `[`)
	f.Fuzz(func(t *testing.T, status int, name, body string) {
		e, _ := ReadAnswer(status, http.Header{"Iothub-Errorcode": {name}}, []byte(body))
		for _, text := range []string{e.Name, e.Message, e.TrackingID} {
			if len(text) > scrub.MaxPeer+len("...") || strings.ContainsAny(text, "\r\n\x00") {
				t.Errorf("%q", text)
			}
		}
		if e.Meaning == "" {
			t.Errorf("%d: no verdict", status)
		}
	})
}
