/* SPDX-License-Identifier: Apache-2.0 */
#include "forebayVTK.h"

#include <algorithm>
#include <set>
#include <vector>

#include <vtkAbstractArray.h>
#include <vtkAlgorithm.h>
#include <vtkAlgorithmOutput.h>
#include <vtkObjectFactory.h>

#include "refused.h"

vtkStandardNewMacro(forebayCommunicator);
vtkStandardNewMacro(forebayController);

namespace {

/* 0 for what has no size of its own, as strings have none. */
uint64_t bytes(vtkIdType length, int type) {
    if (type == VTK_BIT) return (static_cast<uint64_t>(length) + 7) / 8;
    return static_cast<uint64_t>(length) * static_cast<uint64_t>(vtkAbstractArray::GetDataTypeSize(type));
}

/* 0 if there is none. */
int32_t kindOf(int type) {
    const bool isSigned = static_cast<char>(-1) < 0;
    switch (type) {
    case VTK_CHAR: return isSigned ? FB_I8 : FB_U8;
    case VTK_SIGNED_CHAR: return FB_I8;
    case VTK_UNSIGNED_CHAR: return FB_U8;
    case VTK_SHORT: return FB_I16;
    case VTK_UNSIGNED_SHORT: return FB_U16;
    case VTK_INT: return FB_I32;
    case VTK_UNSIGNED_INT: return FB_U32;
    case VTK_LONG: return sizeof(long) == 8 ? FB_I64 : FB_I32;
    case VTK_UNSIGNED_LONG: return sizeof(long) == 8 ? FB_U64 : FB_U32;
    case VTK_LONG_LONG: return FB_I64;
    case VTK_UNSIGNED_LONG_LONG: return FB_U64;
    case VTK_ID_TYPE: return sizeof(vtkIdType) == 8 ? FB_I64 : FB_I32;
    case VTK_FLOAT: return FB_F32;
    case VTK_DOUBLE: return FB_F64;
    default: return 0;
    }
}

/* 0 if there is none. */
int32_t operationOf(int operation) {
    switch (operation) {
    case vtkCommunicator::MAX_OP: return FB_OP_MAX;
    case vtkCommunicator::MIN_OP: return FB_OP_MIN;
    case vtkCommunicator::SUM_OP: return FB_OP_SUM;
    case vtkCommunicator::PRODUCT_OP: return FB_OP_PRODUCT;
    case vtkCommunicator::LOGICAL_AND_OP: return FB_OP_LOGICAL_AND;
    case vtkCommunicator::BITWISE_AND_OP: return FB_OP_BIT_AND;
    case vtkCommunicator::LOGICAL_OR_OP: return FB_OP_LOGICAL_OR;
    case vtkCommunicator::BITWISE_OR_OP: return FB_OP_BIT_OR;
    case vtkCommunicator::LOGICAL_XOR_OP: return FB_OP_LOGICAL_XOR;
    case vtkCommunicator::BITWISE_XOR_OP: return FB_OP_BIT_XOR;
    default: return 0;
    }
}

/* The first of a filter, and of those that it takes its input from, that may not be used; NULL if there is none. */
const char *refusedOf(vtkAlgorithm *algorithm) {
    std::vector<vtkAlgorithm *> waiting = {algorithm};
    std::set<vtkAlgorithm *> seen;
    while (!waiting.empty()) {
        vtkAlgorithm *one = waiting.back();
        waiting.pop_back();
        if (!seen.insert(one).second) continue;
        for (const char *name : forebayRefused)
            if (one->IsA(name)) return name;
        for (int port = 0; port < one->GetNumberOfInputPorts(); port++)
            for (int i = 0; i < one->GetNumberOfInputConnections(port); i++)
                waiting.push_back(one->GetInputConnection(port, i)->GetProducer());
    }
    return nullptr;
}

}  // namespace

forebayCommunicator::~forebayCommunicator() { this->Leave(); }

void forebayCommunicator::PrintSelf(ostream &os, vtkIndent indent) {
    this->Superclass::PrintSelf(os, indent);
    os << indent << "Result: " << fb_result_name(this->Result) << " " << this->Error << endl;
}

int forebayCommunicator::Open(fb_comm *comm) {
    uint32_t rank = 0, size = 0;
    this->Leave();
    this->Result = FB_OK;
    this->Error.clear();
    int result = fb_comm_dup(comm, &this->Comm);
    if (result == FB_OK) result = fb_comm_rank(this->Comm, &rank);
    if (result == FB_OK) result = fb_comm_size(this->Comm, &size);
    if (result != FB_OK) {
        this->Fail(result, fb_error());
        return result;
    }
    this->MaximumNumberOfProcesses = static_cast<int>(size);
    this->NumberOfProcesses = static_cast<int>(size);
    this->LocalProcessId = static_cast<int>(rank);
    return FB_OK;
}

void forebayCommunicator::Leave() {
    if (this->Comm) fb_comm_close(this->Comm);
    this->Comm = nullptr;
}

void forebayCommunicator::Fail(int result, const std::string &text) {
    if (this->Result != FB_OK) return;
    this->Result = result;
    this->Error = text;
    if (this->Comm) fb_comm_revoke(this->Comm, (std::string(fb_result_name(result)) + ": " + text).c_str());
    this->Leave();
}

/* What VTK hears of a result: 1, or 0 for ever after an error. */
int forebayCommunicator::Told(int result) {
    if (result != FB_OK) this->Fail(result, fb_error());
    return this->Result == FB_OK;
}

#define STOP_IF_FAILED(type)                                                                                \
    do {                                                                                                     \
        if (!this->Comm) this->Fail(FB_CLOSED, "the controller is not open");                                \
        if (bytes(1, type) == 0) this->Fail(FB_INVALID, "VTK gives elements of a type that cannot be sent"); \
        if (this->Result != FB_OK) return 0;                                                                 \
    } while (0)

int forebayCommunicator::SendVoidArray(const void *data, vtkIdType length, int type, int remote, int tag) {
    STOP_IF_FAILED(type);
    return this->Told(fb_comm_send(this->Comm, static_cast<uint32_t>(remote), static_cast<uint64_t>(tag), data, bytes(length, type)));
}

int forebayCommunicator::ReceiveVoidArray(void *data, vtkIdType length, int type, int remote, int tag) {
    STOP_IF_FAILED(type);
    fb_comm_status status = {};
    const int64_t source = remote == vtkMultiProcessController::ANY_SOURCE ? FB_ANY : remote;
    if (!this->Told(fb_comm_recv(this->Comm, source, tag, data, bytes(length, type), &status))) return 0;
    this->Count = static_cast<vtkIdType>(type == VTK_BIT ? 8 * status.bytes : status.bytes / bytes(1, type));
    return 1;
}

void forebayCommunicator::Barrier() {
    if (this->Comm && this->Result == FB_OK) this->Told(fb_comm_barrier(this->Comm));
}

int forebayCommunicator::BroadcastVoidArray(void *data, vtkIdType length, int type, int root) {
    STOP_IF_FAILED(type);
    return this->Told(fb_comm_bcast(this->Comm, data, bytes(length, type), static_cast<uint32_t>(root)));
}

int forebayCommunicator::GatherVoidArray(const void *sent, void *received, vtkIdType length, int type, int root) {
    STOP_IF_FAILED(type);
    return this->Told(fb_comm_gather(this->Comm, sent, bytes(length, type), received, static_cast<uint32_t>(root)));
}

int forebayCommunicator::AllGatherVoidArray(const void *sent, void *received, vtkIdType length, int type) {
    STOP_IF_FAILED(type);
    return this->Told(fb_comm_allgather(this->Comm, sent, bytes(length, type), received));
}

int forebayCommunicator::ReduceVoidArray(const void *sent, void *received, vtkIdType length, int type, int operation, int root) {
    STOP_IF_FAILED(type);
    const int32_t kind = kindOf(type), op = operationOf(operation);
    if (!kind || !op) return this->Superclass::ReduceVoidArray(sent, received, length, type, operation, root);
    const uint64_t count = static_cast<uint64_t>(length);
    return this->Told(fb_comm_reduce(this->Comm, sent, received, count, kind, op, static_cast<uint32_t>(root)));
}

int forebayCommunicator::AllReduceVoidArray(const void *sent, void *received, vtkIdType length, int type, int operation) {
    STOP_IF_FAILED(type);
    const int32_t kind = kindOf(type), op = operationOf(operation);
    if (!kind || !op) return this->Superclass::AllReduceVoidArray(sent, received, length, type, operation);
    return this->Told(fb_comm_allreduce(this->Comm, sent, received, static_cast<uint64_t>(length), kind, op));
}

forebayController::forebayController() : Own(forebayCommunicator::New()) {
    this->SetCommunicator(this->Own);
    this->SetRMICommunicator(this->Own);
}

forebayController::~forebayController() {
    if (this->Own->IsOpen()) this->Own->Fail(FB_CLOSED, "a controller has gone without Close()");
    this->Own->Delete();
}

int forebayController::Open(fb_comm *comm) {
    if (this->Own->IsOpen()) this->Own->Fail(FB_CLOSED, "a controller was opened again without Close()");
    return this->Own->Open(comm);
}

int forebayController::Update(vtkAlgorithm *algorithm) {
    if (!this->Own->IsOpen()) this->Own->Fail(FB_CLOSED, "the controller is not open: it would run on each rank for itself");
    if (this->GetResult() != FB_OK) return this->GetResult();
    if (const char *name = refusedOf(algorithm)) {
        this->Own->Fail(FB_UNSUPPORTED, std::string(name) +
                                            " was not found to work with Forebay's controller: filters that need MPI run on each"
                                            " worker for itself, without a word, and are wrong; docs/vtk.md names those that work");
        return this->GetResult();
    }
    algorithm->Update();
    return this->GetResult();
}

int forebayController::Close() {
    /* Nobody has the whole answer while another one has failed. */
    this->Own->Barrier();
    this->Own->Leave();
    return this->GetResult();
}

int forebayController::GetResult() const { return this->Own->GetResult(); }

const std::string &forebayController::GetError() const { return this->Own->GetError(); }

int forebayController::GetLocalProcessId() { return this->Own->GetLocalProcessId(); }
