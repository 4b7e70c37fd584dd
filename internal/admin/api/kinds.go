package api

// The kinds of answers.
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
	KindEndpointList    = "EndpointList"
	KindEndpointsResult = "EndpointsResult"
	KindHistory         = "History"
	KindRevisionChanges = "RevisionChanges"
	KindBlame           = "Blame"
	KindCommit          = "Commit"
	KindFreeze          = "Freeze"
	KindRolloutList     = "RolloutList"
	KindLogLevel        = "LogLevel"
	KindReferenceGraph  = "ReferenceGraph"
	KindClientCommand   = "ClientCommand"
	KindVersion         = "Version"
	KindError           = "Error"
)
