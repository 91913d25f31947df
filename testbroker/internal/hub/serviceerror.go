package hub

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
)

// Error codes of twins and methods. See errorNames.
const (
	CodeInvalidOperation   = 400003
	CodeArgumentInvalid    = 400004
	codeDisplaced          = 400027
	CodeDeviceNotFound     = 404001
	codeModuleNotFound     = 404010
	codeDeviceNotOnline    = 404103
	CodePreconditionFailed = 412001
	codeMessageTooLarge    = 413001
	codeThrottled          = 429001
	CodeServerError        = 500001
	codeBadDeviceResponse  = 502000
	codeGatewayTimeout     = 504101
)

// lacks refuses what a hub with the MQTT v5 connection profile does not have.
func (h *Hub) lacks(what string) error {
	return h.ServiceError(CodeInvalidOperation, "the hub has the MQTT v5 connection profile, and no %s", what)
}

// declared returns the error of a fault that refuses.
func (h *Hub) declared(f *fault.Fault) *hubdata.ServiceError {
	code := f.ErrorCode
	if code == 0 {
		code = CommonCode(f.Status)
	}
	return h.ServiceError(code, "%s", cmp.Or(f.Description, "fault "+f.Kind.String()))
}

func (h *Hub) ServiceError(code int, format string, args ...any) *hubdata.ServiceError {
	e := &hubdata.ServiceError{Code: code, Name: ErrorName(code), Message: fmt.Sprintf(format, args...),
		TrackingID: fmt.Sprintf("%032X", h.tracked.Add(1))}
	if code == CodeDeviceNotFound || code == codeModuleNotFound {
		e.Err = ErrNotFound
	}
	return e
}

// errorBody returns the error as the body of an answer to a twin request.
func (h *Hub) errorBody(e *hubdata.ServiceError) []byte {
	body, err := json.Marshal(struct {
		ErrorCode    int    `json:"errorCode"`
		TrackingID   string `json:"trackingId"`
		Message      string `json:"message"`
		TimestampUTC string `json:"timestampUtc"`
	}{e.Code, e.TrackingID, e.Message, document.TimeText(h.Now())})
	if err != nil {
		panic(err) // the struct always encodes as JSON
	}
	return body
}

// errorNames maps the service's error codes to their names. Sources: the enumerations of its SDKs
// and the page "Troubleshoot IoT Hub error codes".
var errorNames = map[int]string{
	400000: "GenericBadRequest",
	400001: "InvalidProtocolVersion",
	400002: "DeviceInvalidResultCount",
	400003: "InvalidOperation",
	400004: "ArgumentInvalid",
	400005: "ArgumentNull",
	400006: "IotHubFormatError",
	400007: "DeviceStorageEntitySerializationError",
	400008: "BlobContainerValidationError",
	400009: "ImportWarningExistsError",
	400010: "InvalidSchemaVersion",
	400011: "DeviceDefinedMultipleTimes",
	400012: "DeserializationError",
	400013: "BulkRegistryOperationFailure",
	400014: "DefaultStorageEndpointNotConfigured",
	400015: "InvalidFileUploadCorrelationId",
	400016: "ExpiredFileUploadCorrelationId",
	400017: "InvalidStorageEndpoint",
	400018: "InvalidMessagingEndpoint",
	400019: "InvalidFileUploadCompletionStatus",
	400020: "InvalidStorageEndpointOrBlob",
	400021: "RequestCanceled",
	400022: "InvalidStorageEndpointProperty",
	400023: "EtagDoesNotMatch",
	400024: "RequestTimedOut",
	400025: "UnsupportedOperationOnReplica",
	400026: "NullMessage",
	400027: "ConnectionForcefullyClosedOnNewConnection",
	400028: "InvalidDeviceScope",
	400029: "ConnectionForcefullyClosedOnFaultInjection",
	400030: "ConnectionRejectedOnFaultInjection",
	400031: "InvalidEndpointAuthenticationType",
	400032: "ManagedIdentityNotEnabled",
	400035: "InvalidPolicyKey",
	400036: "BulkRegenerateDeviceKeyOperationFailure",
	400100: "InvalidRouteTestInput",
	400101: "InvalidSourceOnRoute",
	400102: "RoutingNotEnabled",
	400103: "InvalidContentEncodingOrType",
	400301: "CannotRegisterModuleToModule",
	400302: "TenantHubRoutingNotEnabled",
	400401: "InvalidConfigurationTargetCondition",
	400402: "InvalidConfigurationContent",
	400403: "CannotModifyImmutableConfigurationContent",
	400404: "InvalidConfigurationCustomMetricsQuery",
	400501: "InvalidPnPInterfaceDefinition",
	400502: "InvalidPnPDesiredProperties",
	400503: "InvalidPnPReportedProperties",
	400504: "InvalidPnPWritableReportedProperties",
	400505: "InvalidDigitalTwinJsonPatch",
	400506: "InvalidDigitalTwinPayload",
	400507: "InvalidDigitalTwinPatch",
	400508: "InvalidDigitalTwinPatchPath",
	401000: "GenericUnauthorized",
	401001: "IotHubNotFound",
	401002: "IotHubUnauthorizedAccess",
	401003: "IotHubUnauthorized",
	401004: "ElasticPoolNotFound",
	401100: "SystemModuleModifyUnauthorizedAccess",
	403000: "GenericForbidden",
	403001: "IotHubSuspended",
	403002: "IotHubQuotaExceeded",
	403003: "JobQuotaExceeded",
	403004: "DeviceMaximumQueueDepthExceeded",
	403005: "IotHubMaxCbsTokenExceeded",
	403006: "DeviceMaximumActiveFileUploadLimitExceeded",
	403007: "DeviceMaximumQueueSizeExceeded",
	403008: "RoutingEndpointResponseForbidden",
	403009: "InvalidMessageExpiryTime",
	403010: "OperationNotAvailableInCurrentTier",
	403011: "KeyEncryptionKeyRevoked",
	403012: "DeviceDisabled",
	403100: "DeviceModelMaxPropertiesExceeded",
	403101: "DeviceModelMaxIndexablePropertiesExceeded",
	403800: "DeviceMaximumInflightMethodExceeded",
	404000: "GenericNotFound",
	404001: "DeviceNotFound",
	404002: "JobNotFound",
	404004: "QuotaMetricNotFound",
	404005: "SystemPropertyNotFound",
	404006: "AmqpAddressNotFound",
	404007: "RoutingEndpointResponseNotFound",
	404008: "CertificateNotFound",
	404009: "ElasticPoolTenantHubNotFound",
	404010: "ModuleNotFound",
	404011: "AzureTableStoreNotFound",
	404012: "IotHubFailingOver",
	404013: "FeatureNotSupported",
	404014: "DigitalTwinInterfaceNotFound",
	404101: "QueryStoreClusterNotFound",
	404103: "DeviceNotOnline",
	404104: "DeviceConnectionClosedRemotely",
	404301: "ConfigurationNotFound",
	404302: "GroupNotFound",
	404401: "DigitalTwinModelNotFound",
	404402: "InterfaceNameModelNotFound",
	405000: "GenericMethodNotAllowed",
	405102: "OperationNotAllowedInCurrentState",
	405103: "ImportDevicesNotSupported",
	405104: "BulkAddDevicesNotSupported",
	408000: "GenericTimeout",
	409000: "GenericConflict",
	409001: "DeviceAlreadyExists",
	409002: "LinkCreationConflict",
	409003: "CallbackSubscriptionConflict",
	409101: "ModelAlreadyExists",
	409102: "DeviceLocked",
	409103: "DeviceJobAlreadyExists",
	409104: "JobAlreadyExists",
	409301: "ModuleAlreadyExistsOnDevice",
	409401: "ConfigurationAlreadyExists",
	409402: "ApplyConfigurationAlreadyInProgressOnDevice",
	409501: "DigitalTwinModelAlreadyExists",
	409502: "DigitalTwinModelExistsWithOtherModelType",
	409503: "InterfaceNameModelAlreadyExists",
	412000: "GenericPreconditionFailed",
	412001: "PreconditionFailed",
	412002: "DeviceMessageLockLost",
	412003: "JobRunPreconditionFailed",
	412004: "InflightMessagesInLink",
	413000: "GenericRequestEntityTooLarge",
	413001: "MessageTooLarge",
	413002: "TooManyDevices",
	413003: "TooManyModulesOnDevice",
	413101: "ConfigurationCountLimitExceeded",
	413201: "DigitalTwinModelCountLimitExceeded",
	413202: "InterfaceNameCompressionModelCountLimitExceeded",
	415000: "GenericUnsupportedMediaType",
	415101: "IncompatibleDataType",
	429000: "GenericTooManyRequests",
	429001: "ThrottlingException",
	429002: "ThrottleBacklogLimitExceeded",
	429003: "ThrottlingBacklogTimeout",
	429004: "ThrottlingMaxActiveJobCountExceeded",
	429005: "DeviceThrottlingLimitExceeded",
	499000: "ClientClosedRequest",
	500000: "GenericServerError",
	500001: "ServerError",
	500002: "JobCancelled",
	500008: "GenericTimeout",
	500009: "InvalidThrottleParameter",
	502000: "GenericBadGateway",
	503000: "GenericServiceUnavailable",
	503001: "ServiceUnavailable",
	503003: "PartitionNotFound",
	503004: "IotHubActivationFailed",
	503005: "ServerBusy",
	503006: "IotHubRestoring",
	503008: "ReceiveLinkOpensThrottled",
	504000: "GenericGatewayTimeout",
	504101: "GatewayTimeout",
}

// CommonCode returns the service's code that usually comes with a status.
func CommonCode(status int) int {
	switch status {
	case 401:
		return 401003
	case 403:
		return 403002
	case 404:
		return 404001
	case 412:
		return 412002
	case 413:
		return 413001
	case 429:
		return 429001
	case 500:
		return 500001
	case 503:
		return 503001
	}
	return status * 1000
}

// ErrorName returns the service's name of a code.
func ErrorName(code int) string {
	if name := errorNames[code]; name != "" {
		return name
	}
	if name := errorNames[code/1000*1000]; name != "" {
		return name
	}
	return "InvalidErrorCode"
}
