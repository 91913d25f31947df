package http

import "github.com/hubline-iot/hubline/transport"

// codeRow is one of the hub's own error codes.
type codeRow struct {
	code int
	name string
	own  verdict // without a reason: what the status says, which is code/1000
}

func (r codeRow) verdict() verdict {
	if r.own.reason != "" {
		return r.own
	}
	return statusVerdict(r.code / 1000)
}

// codes are the hub's own error codes: status * 1000 + n (Azure IoT Hub developer guide, and the enumeration ErrorCode of the service's C# library). A code that is not
// listed means what its status says.
var codes = []codeRow{
	{400000, "GenericBadRequest", verdict{}},
	{400001, "InvalidProtocolVersion", verdict{transport.Unsupported, identity, "the hub does not speak this api-version"}},
	{400002, "DeviceInvalidResultCount", verdict{}},
	{400003, "InvalidOperation", verdict{}},
	{400004, "ArgumentInvalid", verdict{}},
	{400005, "ArgumentNull", verdict{}},
	{400006, "IotHubFormatError", verdict{}},
	{400007, "DeviceStorageEntitySerializationError", verdict{}},
	{400008, "BlobContainerValidationError", verdict{}},
	{400009, "ImportWarningExistsError", verdict{}},
	{400010, "InvalidSchemaVersion", verdict{}},
	{400011, "DeviceDefinedMultipleTimes", verdict{}},
	{400012, "DeserializationError", verdict{}},
	{400013, "BulkRegistryOperationFailure", verdict{}},
	{400014, "DefaultStorageEndpointNotConfigured", verdict{}},
	{400015, "InvalidFileUploadCorrelationId", verdict{}},
	{400016, "ExpiredFileUploadCorrelationId", verdict{}},
	{400017, "InvalidStorageEndpoint", verdict{}},
	{400018, "InvalidMessagingEndpoint", verdict{}},
	{400019, "InvalidFileUploadCompletionStatus", verdict{}},
	{400020, "InvalidStorageEndpointOrBlob", verdict{}},
	{400021, "RequestCanceled", verdict{transport.Unavailable, moment, "the hub cancelled the request"}},
	{400022, "InvalidStorageEndpointProperty", verdict{}},
	{400023, "EtagDoesNotMatch", verdict{transport.Conflict, message, "etag does not match"}},
	{400024, "RequestTimedOut", verdict{transport.Timeout, moment, "the hub took too long"}},
	{400025, "UnsupportedOperationOnReplica", verdict{}},
	{400026, "NullMessage", verdict{}},
	{400027, "ConnectionForcefullyClosedOnNewConnection", verdict{transport.Unavailable, moment, "another connection of this device took over"}},
	{400028, "InvalidDeviceScope", verdict{}},
	{400029, "ConnectionForcefullyClosedOnFaultInjection", verdict{transport.Unavailable, moment, "the hub is being upgraded"}},
	{400030, "ConnectionRejectedOnFaultInjection", verdict{transport.Unavailable, moment, "the hub is being upgraded"}},
	{400031, "InvalidEndpointAuthenticationType", verdict{}},
	{400032, "ManagedIdentityNotEnabled", verdict{}},
	{400035, "InvalidPolicyKey", verdict{}},
	{400036, "BulkRegenerateDeviceKeyOperationFailure", verdict{}},
	{400100, "InvalidRouteTestInput", verdict{}},
	{400101, "InvalidSourceOnRoute", verdict{}},
	{400102, "RoutingNotEnabled", verdict{}},
	{400103, "InvalidContentEncodingOrType", verdict{}},
	{400301, "CannotRegisterModuleToModule", verdict{}},
	{400302, "TenantHubRoutingNotEnabled", verdict{}},
	{400401, "InvalidConfigurationTargetCondition", verdict{}},
	{400402, "InvalidConfigurationContent", verdict{}},
	{400403, "CannotModifyImmutableConfigurationContent", verdict{}},
	{400404, "InvalidConfigurationCustomMetricsQuery", verdict{}},
	{400501, "InvalidPnPInterfaceDefinition", verdict{}},
	{400502, "InvalidPnPDesiredProperties", verdict{}},
	{400503, "InvalidPnPReportedProperties", verdict{}},
	{400504, "InvalidPnPWritableReportedProperties", verdict{}},
	{400505, "InvalidDigitalTwinJsonPatch", verdict{}},
	{400506, "InvalidDigitalTwinPayload", verdict{}},
	{400507, "InvalidDigitalTwinPatch", verdict{}},
	{400508, "InvalidDigitalTwinPatchPath", verdict{}},

	{401000, "GenericUnauthorized", verdict{}},
	{401001, "IotHubNotFound", verdict{transport.NotFound, identity, "hub not found"}},
	{401002, "IotHubUnauthorizedAccess", verdict{}},
	{401003, "IotHubUnauthorized", verdict{}},
	{401004, "ElasticPoolNotFound", verdict{}},
	{401100, "SystemModuleModifyUnauthorizedAccess", verdict{}},

	{403000, "GenericForbidden", verdict{transport.Forbidden, identity, "forbidden"}},
	{403001, "IotHubSuspended", verdict{transport.Forbidden, identity, "the hub is suspended"}},
	{403002, "IotHubQuotaExceeded", verdict{transport.Quota, moment, "the day's messages are used up"}},
	{403003, "JobQuotaExceeded", verdict{}},
	{403004, "DeviceMaximumQueueDepthExceeded", verdict{}},
	{403005, "IotHubMaxCbsTokenExceeded", verdict{}},
	{403006, "DeviceMaximumActiveFileUploadLimitExceeded", verdict{}},
	{403007, "DeviceMaximumQueueSizeExceeded", verdict{}},
	{403008, "RoutingEndpointResponseForbidden", verdict{transport.Forbidden, identity, "a routing endpoint refuses the hub"}},
	{403009, "InvalidMessageExpiryTime", verdict{transport.Invalid, message, "expiry time not acceptable"}},
	{403010, "OperationNotAvailableInCurrentTier", verdict{transport.Unsupported, identity, "not in this hub's tier"}},
	{403011, "KeyEncryptionKeyRevoked", verdict{transport.Forbidden, identity, "the hub's own key was revoked"}},
	{403012, "DeviceDisabled", verdict{transport.Forbidden, identity, "the device is disabled"}},
	{403100, "DeviceModelMaxPropertiesExceeded", verdict{transport.Invalid, message, "too many properties"}},
	{403101, "DeviceModelMaxIndexablePropertiesExceeded", verdict{transport.Invalid, message, "too many properties"}},
	{403800, "DeviceMaximumInflightMethodExceeded", verdict{transport.Throttled, moment, "too many methods at a time"}},

	{404000, "GenericNotFound", verdict{}},
	{404001, "DeviceNotFound", verdict{}},
	{404002, "JobNotFound", verdict{}},
	{404004, "QuotaMetricNotFound", verdict{}},
	{404005, "SystemPropertyNotFound", verdict{}},
	{404006, "AmqpAddressNotFound", verdict{}},
	{404007, "RoutingEndpointResponseNotFound", verdict{}},
	{404008, "CertificateNotFound", verdict{}},
	{404009, "ElasticPoolTenantHubNotFound", verdict{}},
	{404010, "ModuleNotFound", verdict{}},
	{404011, "AzureTableStoreNotFound", verdict{}},
	{404012, "IotHubFailingOver", verdict{transport.Unavailable, moment, "the hub is failing over"}},
	{404013, "FeatureNotSupported", verdict{transport.Unsupported, identity, "the hub lacks the feature"}},
	{404014, "DigitalTwinInterfaceNotFound", verdict{}},
	{404101, "QueryStoreClusterNotFound", verdict{}},
	{404102, "DeviceNotOnline", verdict{transport.Unavailable, moment, "the device is not online"}},
	{404103, "DeviceNotOnline", verdict{transport.Unavailable, moment, "the device is not online"}},
	{404104, "DeviceConnectionClosedRemotely", verdict{transport.Unavailable, moment, "the device's connection was closed"}},
	{404301, "ConfigurationNotFound", verdict{}},
	{404302, "GroupNotFound", verdict{}},
	{404401, "DigitalTwinModelNotFound", verdict{}},
	{404402, "InterfaceNameModelNotFound", verdict{}},

	{405000, "GenericMethodNotAllowed", verdict{}},
	{405102, "OperationNotAllowedInCurrentState", verdict{}},
	{405103, "ImportDevicesNotSupported", verdict{}},
	{405104, "BulkAddDevicesNotSupported", verdict{}},

	{409000, "GenericConflict", verdict{}},
	{409001, "DeviceAlreadyExists", verdict{}},
	{409002, "LinkCreationConflict", verdict{transport.Unavailable, moment, "another connection of this device took over"}},
	{409003, "CallbackSubscriptionConflict", verdict{transport.Unavailable, moment, "another subscription of this device took over"}},
	{409101, "ModelAlreadyExists", verdict{}},
	{409102, "DeviceLocked", verdict{}},
	{409103, "DeviceJobAlreadyExists", verdict{}},
	{409104, "JobAlreadyExists", verdict{}},
	{409301, "ModuleAlreadyExistsOnDevice", verdict{}},
	{409401, "ConfigurationAlreadyExists", verdict{}},
	{409402, "ApplyConfigurationAlreadyInProgressOnDevice", verdict{}},
	{409501, "DigitalTwinModelAlreadyExists", verdict{}},
	{409502, "DigitalTwinModelExistsWithOtherModelType", verdict{}},
	{409503, "InterfaceNameModelAlreadyExists", verdict{}},

	{412000, "GenericPreconditionFailed", verdict{}},
	{412001, "PreconditionFailed", verdict{}},
	{412002, "DeviceMessageLockLost", verdict{}},
	{412003, "JobRunPreconditionFailed", verdict{}},
	{412004, "InflightMessagesInLink", verdict{}},

	{413000, "GenericRequestEntityTooLarge", verdict{}},
	{413001, "MessageTooLarge", verdict{}},
	{413002, "TooManyDevices", verdict{}},
	{413003, "TooManyModulesOnDevice", verdict{}},
	{413101, "ConfigurationCountLimitExceeded", verdict{}},
	{413201, "DigitalTwinModelCountLimitExceeded", verdict{}},
	{413202, "InterfaceNameCompressionModelCountLimitExceeded", verdict{}},

	{415000, "GenericUnsupportedMediaType", verdict{}},
	{415101, "IncompatibleDataType", verdict{}},

	{429000, "GenericTooManyRequests", verdict{}},
	{429001, "ThrottlingException", verdict{}},
	{429002, "ThrottleBacklogLimitExceeded", verdict{}},
	{429003, "ThrottlingBacklogTimeout", verdict{}},
	{429004, "ThrottlingMaxActiveJobCountExceeded", verdict{}},
	{429005, "DeviceThrottlingLimitExceeded", verdict{}},

	{499000, "ClientClosedRequest", verdict{}},

	{500001, "ServerError", verdict{}},
	{500002, "JobCancelled", verdict{transport.Unknown, message, "a job was cancelled"}},
	{500008, "GenericTimeout", verdict{transport.Timeout, moment, "the service timed out"}},
	{500009, "InvalidThrottleParameter", verdict{}},
	{500301, "", verdict{}}, // 5003xx to 5005xx: models, managed identities, expansion of Plug and Play
	{500302, "", verdict{}},
	{500401, "", verdict{}},
	{500402, "", verdict{}},
	{500403, "", verdict{}},
	{500501, "", verdict{}},
	{500502, "", verdict{}},
	{500503, "", verdict{}},
	{500504, "", verdict{}},
	{500505, "", verdict{}},

	{502000, "GenericBadGateway", verdict{}},

	{503000, "GenericServiceUnavailable", verdict{}},
	{503001, "ServiceUnavailable", verdict{}},
	{503003, "PartitionNotFound", verdict{}},
	{503004, "IotHubActivationFailed", verdict{}},
	{503005, "ServerBusy", verdict{}},
	{503006, "IotHubRestoring", verdict{}},
	{503008, "ReceiveLinkOpensThrottled", verdict{transport.Throttled, moment, "too many receivers at a time"}},

	{504000, "GenericGatewayTimeout", verdict{}},
	{504101, "GatewayTimeout", verdict{}},
}

// codeTable and codeNamed find a row.
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
