package adminapi

// Kinds of answers.
const (
	KindStatus          = "Status"
	KindClientList      = "ClientList"
	KindClientResources = "ClientResourceList"
	KindResourceList    = "ResourceList"
	KindRefusalList     = "RefusalList"
	KindGroupList       = "GroupList"
	KindExplanation     = "Explanation"
	KindWaitResult      = "WaitResult"
	KindReload          = "Reload"
	KindImpact          = "Impact"
	KindNodeInfo        = "NodeInfo"
	KindLogLevel        = "LogLevel"
	KindVersion         = "Version"
	KindError           = "Error"
)
