/* VTK's own parallel filters on a communicator of Forebay's, without MPI.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *     vtkNew<forebayController> controller;
 *     if (controller->Open(comm) != FB_OK) ...
 *     integrate->SetController(controller);
 *     if (controller->Update(integrate) != FB_OK) std::cerr << controller->GetError();
 *     if (controller->Close() != FB_OK) ...            // the answer counts on all ranks, or on none
 *
 * VTK does not look at the errors of a communicator.  So the first one stays: from then on nothing is sent, the other ranks
 * hear of it at once, and Update and Close return it.  The communicator that it was opened with goes on.  Filters that need MPI run on
 * each rank for itself, without a word, and are wrong: Update refuses them by name.  docs/vtk.md says which filters work.
 */
#ifndef forebayVTK_h
#define forebayVTK_h

#include <string>

#include <vtkCommunicator.h>
#include <vtkDummyController.h>

#include "forebay_comm.h"

class vtkAlgorithm;

/* What VTK sends, by a communicator of Forebay's. */
class forebayCommunicator : public vtkCommunicator {
public:
    static forebayCommunicator *New();
    vtkTypeMacro(forebayCommunicator, vtkCommunicator);
    void PrintSelf(ostream &os, vtkIndent indent) override;

    /* Takes a copy of `comm`, whose messages are its own.  All ranks call it; waits for them. */
    int Open(fb_comm *comm);
    /* Frees the copy. */
    void Leave();
    bool IsOpen() const { return this->Comm != nullptr; }
    /* FB_OK, or the first error. */
    int GetResult() const { return this->Result; }
    /* What it says. */
    const std::string &GetError() const { return this->Error; }
    /* From here on nothing is sent. */
    void Fail(int result, const std::string &text);

    int SendVoidArray(const void *data, vtkIdType length, int type, int remote, int tag) override;
    int ReceiveVoidArray(void *data, vtkIdType length, int type, int remote, int tag) override;
    void Barrier() override;
    int BroadcastVoidArray(void *data, vtkIdType length, int type, int root) override;
    int GatherVoidArray(const void *sent, void *received, vtkIdType length, int type, int root) override;
    int AllGatherVoidArray(const void *sent, void *received, vtkIdType length, int type) override;
    int ReduceVoidArray(const void *sent, void *received, vtkIdType length, int type, int operation, int root) override;
    int AllReduceVoidArray(const void *sent, void *received, vtkIdType length, int type, int operation) override;
    /* Those with operations of one's own are vtkCommunicator's. */
    using vtkCommunicator::AllReduceVoidArray;
    using vtkCommunicator::ReduceVoidArray;

protected:
    forebayCommunicator() = default;
    ~forebayCommunicator() override;

private:
    forebayCommunicator(const forebayCommunicator &) = delete;
    void operator=(const forebayCommunicator &) = delete;
    int Told(int result);

    fb_comm *Comm = nullptr;
    int Result = FB_OK;
    std::string Error;
};

/* The controller that filters are given.  VTK's vtkDummyController is the one that takes any communicator. */
class forebayController : public vtkDummyController {
public:
    static forebayController *New();
    vtkTypeMacro(forebayController, vtkDummyController);

    /* All ranks of `comm` call it, once; waits for them.  FB_OK, or what fb_comm_dup says. */
    int Open(fb_comm *comm);
    /* Brings a filter, and all that it takes its input from, up to date.  All ranks call it.  FB_UNSUPPORTED if one of them would run
     * for itself alone; else what went wrong in the communicator. */
    int Update(vtkAlgorithm *algorithm);
    /* Ends it.  Waits for the other ranks, and returns what went wrong on any.  A controller that goes without it has failed, which the
     * others hear. */
    int Close();

    int GetResult() const;
    const std::string &GetError() const;
    int GetLocalProcessId();

protected:
    forebayController();
    ~forebayController() override;

private:
    forebayController(const forebayController &) = delete;
    void operator=(const forebayController &) = delete;
    /* RMICommunicator and Communicator of the controller are this one. */
    forebayCommunicator *Own;
};

#endif
