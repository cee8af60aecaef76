/* What a plug-in execution provider needs of ONNX Runtime's C interface, API version 24, written for this project.
 *
 * ONNX Runtime's tables of functions only grow at their ends, so a function's place in its table never changes. Names and
 * places are those of onnxruntime_c_api.h and onnxruntime_ep_c_api.h. The oldest and the newest host run the double. */
#include <stddef.h>
#include <stdint.h>

enum { API = 24, FLOAT = 1, GPU = 1, EP_FAIL = 11 }; /* ORT_API_VERSION, and values of three of its enumerations */

typedef void *Status; /* OrtStatus *, NULL on success */
typedef Status (**Table)();

enum { /* places in struct OrtApi */
    CreateStatus = 0, GetTensorMutableData = 51, GetDimensionsCount = 61, GetDimensions = 62, GetTensorTypeAndShape = 65,
    KernelContext_GetInput = 90, KernelContext_GetOutput = 91, ReleaseStatus = 93, ReleaseTensorTypeAndShapeInfo = 99,
    GetSessionConfigEntry = 238, CreateKeyValuePairs = 295, AddKeyValuePair = 296, ReleaseKeyValuePairs = 300,
    HardwareDevice_Type = 307, HardwareDevice_VendorId = 308, GetEpApi = 317, Graph_GetNumNodes = 344, Graph_GetNodes = 345,
};

enum { /* places in struct OrtEpApi */
    CreateEpDevice = 0, EpGraphSupportInfo_AddSingleNode = 3, CreateKernelRegistry = 18, ReleaseKernelRegistry = 19,
    KernelRegistry_AddKernel = 20, CreateKernelDefBuilder = 21, ReleaseKernelDefBuilder = 22,
    KernelDefBuilder_SetOperatorType = 23, KernelDefBuilder_SetSinceVersion = 25, KernelDefBuilder_SetExecutionProvider = 26,
    KernelDefBuilder_AddTypeConstraint = 29, KernelDefBuilder_Build = 32, ReleaseKernelDef = 33, GetTensorDataType = 40,
    EpGraphSupportInfo_LookUpKernel = 41,
};

typedef struct { /* struct OrtApiBase */
    Table (*GetApi)(uint32_t version);
    const char *(*GetVersionString)(void);
} ApiBase;

typedef struct { /* struct OrtKernelImpl */
    uint32_t ort_version_supported, flags;
    void *Compute, *Release, *PrePackWeight, *SetSharedPrePackedWeight;
} KernelImpl;

typedef struct { /* struct OrtEp */
    uint32_t ort_version_supported;
    void *GetName, *GetCapability, *Compile_to_GetCompiledModelCompatibilityInfo[10], *GetKernelRegistry;
    void *IsConcurrentRunSupported;
} Ep;

typedef struct { /* struct OrtEpFactory */
    uint32_t ort_version_supported;
    void *GetName, *GetVendor, *GetSupportedDevices, *CreateEp, *ReleaseEp, *GetVendorId, *GetVersion;
    void *ValidateCompiledModelCompatibilityInfo_to_ReleaseAllocator[3], *CreateDataTransfer;
    void *IsStreamAware_to_GetCustomOpDomains[6];
} EpFactory;
