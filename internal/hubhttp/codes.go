package hubhttp

import (
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

// codeRow describes one of the hub's error codes.
type codeRow struct {
	code int
	name string
	own  Verdict // zero: the Verdict of the status, which is code/1000
}

func (r codeRow) verdict() Verdict {
	if r.own.Reason != "" {
		return r.own
	}
	return VerdictOfStatus(r.code / 1000)
}

// codes are the hub's error codes: status * 1000 + n (Azure IoT Hub developer guide, and the
// enumeration ErrorCode of the service's C# library). An unlisted code has the meaning of its
// status.
var codes = []codeRow{
	{400000, "GenericBadRequest", Verdict{}},
	{400001, "InvalidProtocolVersion", Verdict{transport.Unsupported, statuscode.Identity,
		"the hub does not speak this api-version"}},
	{400002, "DeviceInvalidResultCount", Verdict{}},
	{400003, "InvalidOperation", Verdict{}},
	{400004, "ArgumentInvalid", Verdict{}},
	{400005, "ArgumentNull", Verdict{}},
	{400006, "IotHubFormatError", Verdict{}},
	{400007, "DeviceStorageEntitySerializationError", Verdict{}},
	{400008, "BlobContainerValidationError", Verdict{}},
	{400009, "ImportWarningExistsError", Verdict{}},
	{400010, "InvalidSchemaVersion", Verdict{}},
	{400011, "DeviceDefinedMultipleTimes", Verdict{}},
	{400012, "DeserializationError", Verdict{}},
	{400013, "BulkRegistryOperationFailure", Verdict{}},
	{400014, "DefaultStorageEndpointNotConfigured", Verdict{}},
	{400015, "InvalidFileUploadCorrelationId", Verdict{}},
	{400016, "ExpiredFileUploadCorrelationId", Verdict{}},
	{400017, "InvalidStorageEndpoint", Verdict{}},
	{400018, "InvalidMessagingEndpoint", Verdict{}},
	{400019, "InvalidFileUploadCompletionStatus", Verdict{}},
	{400020, "InvalidStorageEndpointOrBlob", Verdict{}},
	{400021, "RequestCanceled", Verdict{transport.Unavailable, statuscode.Moment, "the hub cancelled the request"}},
	{400022, "InvalidStorageEndpointProperty", Verdict{}},
	{400023, "EtagDoesNotMatch", Verdict{transport.Conflict, statuscode.Message, "etag does not match"}},
	{400024, "RequestTimedOut", Verdict{transport.Timeout, statuscode.Moment, "the hub took too long"}},
	{400025, "UnsupportedOperationOnReplica", Verdict{}},
	{400026, "NullMessage", Verdict{}},
	{400027, "ConnectionForcefullyClosedOnNewConnection", Verdict{transport.Unavailable, statuscode.Moment,
		"another connection of this device took over"}},
	{400028, "InvalidDeviceScope", Verdict{}},
	{400029, "ConnectionForcefullyClosedOnFaultInjection", Verdict{transport.Unavailable, statuscode.Moment,
		"the hub is being upgraded"}},
	{400030, "ConnectionRejectedOnFaultInjection",
		Verdict{transport.Unavailable, statuscode.Moment, "the hub is being upgraded"}},
	{400031, "InvalidEndpointAuthenticationType", Verdict{}},
	{400032, "ManagedIdentityNotEnabled", Verdict{}},
	{400035, "InvalidPolicyKey", Verdict{}},
	{400036, "BulkRegenerateDeviceKeyOperationFailure", Verdict{}},
	{400100, "InvalidRouteTestInput", Verdict{}},
	{400101, "InvalidSourceOnRoute", Verdict{}},
	{400102, "RoutingNotEnabled", Verdict{}},
	{400103, "InvalidContentEncodingOrType", Verdict{}},
	{400301, "CannotRegisterModuleToModule", Verdict{}},
	{400302, "TenantHubRoutingNotEnabled", Verdict{}},
	{400401, "InvalidConfigurationTargetCondition", Verdict{}},
	{400402, "InvalidConfigurationContent", Verdict{}},
	{400403, "CannotModifyImmutableConfigurationContent", Verdict{}},
	{400404, "InvalidConfigurationCustomMetricsQuery", Verdict{}},
	{400501, "InvalidPnPInterfaceDefinition", Verdict{}},
	{400502, "InvalidPnPDesiredProperties", Verdict{}},
	{400503, "InvalidPnPReportedProperties", Verdict{}},
	{400504, "InvalidPnPWritableReportedProperties", Verdict{}},
	{400505, "InvalidDigitalTwinJsonPatch", Verdict{}},
	{400506, "InvalidDigitalTwinPayload", Verdict{}},
	{400507, "InvalidDigitalTwinPatch", Verdict{}},
	{400508, "InvalidDigitalTwinPatchPath", Verdict{}},

	{401000, "GenericUnauthorized", Verdict{}},
	{401001, "IotHubNotFound", Verdict{transport.NotFound, statuscode.Identity, "hub not found"}},
	{401002, "IotHubUnauthorizedAccess", Verdict{}},
	{401003, "IotHubUnauthorized", Verdict{}},
	{401004, "ElasticPoolNotFound", Verdict{}},
	{401100, "SystemModuleModifyUnauthorizedAccess", Verdict{}},

	{403000, "GenericForbidden", Verdict{transport.Forbidden, statuscode.Identity, "forbidden"}},
	{403001, "IotHubSuspended", Verdict{transport.Forbidden, statuscode.Identity, "the hub is suspended"}},
	{403002, "IotHubQuotaExceeded", Verdict{transport.Quota, statuscode.Moment, "the day's messages are used up"}},
	{403003, "JobQuotaExceeded", Verdict{}},
	{403004, "DeviceMaximumQueueDepthExceeded", Verdict{}},
	{403005, "IotHubMaxCbsTokenExceeded", Verdict{}},
	{403006, "DeviceMaximumActiveFileUploadLimitExceeded", Verdict{}},
	{403007, "DeviceMaximumQueueSizeExceeded", Verdict{}},
	{403008, "RoutingEndpointResponseForbidden", Verdict{transport.Forbidden, statuscode.Identity,
		"a routing endpoint refuses the hub"}},
	{403009, "InvalidMessageExpiryTime", Verdict{transport.Invalid, statuscode.Message, "expiry time not acceptable"}},
	{403010, "OperationNotAvailableInCurrentTier",
		Verdict{transport.Unsupported, statuscode.Identity, "not in this hub's tier"}},
	{403011, "KeyEncryptionKeyRevoked",
		Verdict{transport.Forbidden, statuscode.Identity, "the hub's own key was revoked"}},
	{403012, "DeviceDisabled", Verdict{transport.Forbidden, statuscode.Identity, "the device is disabled"}},
	{403100, "DeviceModelMaxPropertiesExceeded", Verdict{transport.Invalid, statuscode.Message, "too many properties"}},
	{403101, "DeviceModelMaxIndexablePropertiesExceeded",
		Verdict{transport.Invalid, statuscode.Message, "too many properties"}},
	{403800, "DeviceMaximumInflightMethodExceeded",
		Verdict{transport.Throttled, statuscode.Moment, "too many methods at a time"}},

	{404000, "GenericNotFound", Verdict{}},
	{404001, "DeviceNotFound", Verdict{}},
	{404002, "JobNotFound", Verdict{}},
	{404004, "QuotaMetricNotFound", Verdict{}},
	{404005, "SystemPropertyNotFound", Verdict{}},
	{404006, "AmqpAddressNotFound", Verdict{}},
	{404007, "RoutingEndpointResponseNotFound", Verdict{}},
	{404008, "CertificateNotFound", Verdict{}},
	{404009, "ElasticPoolTenantHubNotFound", Verdict{}},
	{404010, "ModuleNotFound", Verdict{}},
	{404011, "AzureTableStoreNotFound", Verdict{}},
	{404012, "IotHubFailingOver", Verdict{transport.Unavailable, statuscode.Moment, "the hub is failing over"}},
	{404013, "FeatureNotSupported", Verdict{transport.Unsupported, statuscode.Identity, "the hub lacks the feature"}},
	{404014, "DigitalTwinInterfaceNotFound", Verdict{}},
	{404101, "QueryStoreClusterNotFound", Verdict{}},
	{404102, "DeviceNotOnline", Verdict{transport.Unavailable, statuscode.Moment, "the device is not online"}},
	{404103, "DeviceNotOnline", Verdict{transport.Unavailable, statuscode.Moment, "the device is not online"}},
	{404104, "DeviceConnectionClosedRemotely", Verdict{transport.Unavailable, statuscode.Moment,
		"the device's connection was closed"}},
	{404301, "ConfigurationNotFound", Verdict{}},
	{404302, "GroupNotFound", Verdict{}},
	{404401, "DigitalTwinModelNotFound", Verdict{}},
	{404402, "InterfaceNameModelNotFound", Verdict{}},

	{405000, "GenericMethodNotAllowed", Verdict{}},
	{405102, "OperationNotAllowedInCurrentState", Verdict{}},
	{405103, "ImportDevicesNotSupported", Verdict{}},
	{405104, "BulkAddDevicesNotSupported", Verdict{}},

	{409000, "GenericConflict", Verdict{}},
	{409001, "DeviceAlreadyExists", Verdict{}},
	{409002, "LinkCreationConflict", Verdict{transport.Unavailable, statuscode.Moment,
		"another connection of this device took over"}},
	{409003, "CallbackSubscriptionConflict", Verdict{transport.Unavailable, statuscode.Moment,
		"another subscription of this device took over"}},
	{409101, "ModelAlreadyExists", Verdict{}},
	{409102, "DeviceLocked", Verdict{}},
	{409103, "DeviceJobAlreadyExists", Verdict{}},
	{409104, "JobAlreadyExists", Verdict{}},
	{409301, "ModuleAlreadyExistsOnDevice", Verdict{}},
	{409401, "ConfigurationAlreadyExists", Verdict{}},
	{409402, "ApplyConfigurationAlreadyInProgressOnDevice", Verdict{}},
	{409501, "DigitalTwinModelAlreadyExists", Verdict{}},
	{409502, "DigitalTwinModelExistsWithOtherModelType", Verdict{}},
	{409503, "InterfaceNameModelAlreadyExists", Verdict{}},

	{412000, "GenericPreconditionFailed", Verdict{}},
	{412001, "PreconditionFailed", Verdict{}},
	{412002, "DeviceMessageLockLost", Verdict{}},
	{412003, "JobRunPreconditionFailed", Verdict{}},
	{412004, "InflightMessagesInLink", Verdict{}},

	{413000, "GenericRequestEntityTooLarge", Verdict{}},
	{413001, "MessageTooLarge", Verdict{}},
	{413002, "TooManyDevices", Verdict{}},
	{413003, "TooManyModulesOnDevice", Verdict{}},
	{413101, "ConfigurationCountLimitExceeded", Verdict{}},
	{413201, "DigitalTwinModelCountLimitExceeded", Verdict{}},
	{413202, "InterfaceNameCompressionModelCountLimitExceeded", Verdict{}},

	{415000, "GenericUnsupportedMediaType", Verdict{}},
	{415101, "IncompatibleDataType", Verdict{}},

	{429000, "GenericTooManyRequests", Verdict{}},
	{429001, "ThrottlingException", Verdict{}},
	{429002, "ThrottleBacklogLimitExceeded", Verdict{}},
	{429003, "ThrottlingBacklogTimeout", Verdict{}},
	{429004, "ThrottlingMaxActiveJobCountExceeded", Verdict{}},
	{429005, "DeviceThrottlingLimitExceeded", Verdict{}},

	{499000, "ClientClosedRequest", Verdict{}},

	{500001, "ServerError", Verdict{}},
	{500002, "JobCancelled", Verdict{transport.Unknown, statuscode.Message, "a job was cancelled"}},
	{500008, "GenericTimeout", Verdict{transport.Timeout, statuscode.Moment, "the service timed out"}},
	{500009, "InvalidThrottleParameter", Verdict{}},
	{500301, "", Verdict{}}, // 5003xx to 5005xx: models, managed identities, expansion of Plug and Play
	{500302, "", Verdict{}},
	{500401, "", Verdict{}},
	{500402, "", Verdict{}},
	{500403, "", Verdict{}},
	{500501, "", Verdict{}},
	{500502, "", Verdict{}},
	{500503, "", Verdict{}},
	{500504, "", Verdict{}},
	{500505, "", Verdict{}},

	{502000, "GenericBadGateway", Verdict{}},

	{503000, "GenericServiceUnavailable", Verdict{}},
	{503001, "ServiceUnavailable", Verdict{}},
	{503003, "PartitionNotFound", Verdict{}},
	{503004, "IotHubActivationFailed", Verdict{}},
	{503005, "ServerBusy", Verdict{}},
	{503006, "IotHubRestoring", Verdict{}},
	{503008, "ReceiveLinkOpensThrottled", Verdict{transport.Throttled, statuscode.Moment, "too many receivers at a time"}},

	{504000, "GenericGatewayTimeout", Verdict{}},
	{504101, "GatewayTimeout", Verdict{}},
}

// codeTable indexes codes by code, codeNamed by name.
var codeTable, codeNamed = indexCodes()

func indexCodes() (byCode map[int]codeRow, byName map[string]int) {
	byCode, byName = make(map[int]codeRow, len(codes)), make(map[string]int, len(codes))
	for _, row := range codes {
		byCode[row.code] = row
		if row.name != "" {
			byName[row.name] = row.code
		}
	}
	return byCode, byName
}
