/* How large a surface is that lies on several ranks: VTK's vtkIntegrateAttributes on a communicator of Forebay's.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 *     forebay up
 *     forebay_vtk_example 0 3 & forebay_vtk_example 1 3 & forebay_vtk_example 2 3
 *
 * The numbers are the rank and how many ranks there are.  `untried` as a third word asks for a filter that nobody has found to work, and
 * `dies` ends the last rank too early: both are told.
 */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <vtkCellData.h>
#include <vtkDataArray.h>
#include <vtkIntegrateAttributes.h>
#include <vtkNew.h>
#include <vtkPolyData.h>
#include <vtkSmartPointer.h>
#include <vtkSphereSource.h>
#include <vtkTransmitPolyDataPiece.h>
#include <vtkUnstructuredGrid.h>

#include "forebayVTK.h"

static int failed(const char *doing, int result, const char *text) {
    std::fprintf(stderr, "%s: %s: %s\n", doing, fb_result_name(result), text);
    return EXIT_FAILURE;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: %s RANK SIZE [untried | alone | gone | dies]\n", argv[0]);
        return 2;
    }
    const unsigned rank = static_cast<unsigned>(std::atoi(argv[1])), size = static_cast<unsigned>(std::atoi(argv[2]));
    const bool isLast = rank == size - 1;
    const char *what = argc > 3 ? argv[3] : "";
    fb_comm *comm = nullptr;
    int result = fb_comm_open("spheres", rank, size, nullptr, 30, &comm);
    if (result != FB_OK) return failed("opening the communicator", result, fb_error());

    auto controller = vtkSmartPointer<forebayController>::New();
    result = controller->Open(comm);
    if (result != FB_OK) return failed("opening the controller", result, controller->GetError().c_str());
    fb_comm_barrier(comm); /* all have one */
    if (std::strcmp(what, "dies") == 0 && isLast) std::_Exit(0);
    if (std::strcmp(what, "gone") == 0 && isLast) {
        controller = nullptr;
        fb_comm_barrier(comm); /* this one goes on */
        return EXIT_FAILURE;
    }

    /* Each rank has a wedge of a ball. */
    vtkNew<vtkSphereSource> wedge;
    wedge->SetThetaResolution(120);
    wedge->SetPhiResolution(80);
    wedge->SetStartTheta(360.0 * rank / size);
    wedge->SetEndTheta(360.0 * (rank + 1) / size);
    vtkNew<vtkTransmitPolyDataPiece> untried;
    vtkNew<vtkIntegrateAttributes> integrate;
    integrate->SetController(controller);
    if (std::strcmp(what, "untried") == 0 || (isLast && std::strcmp(what, "alone") == 0)) {
        untried->SetController(controller);
        untried->SetInputConnection(wedge->GetOutputPort());
        integrate->SetInputConnection(untried->GetOutputPort());
    } else {
        integrate->SetInputConnection(wedge->GetOutputPort());
    }
    result = controller->Update(integrate);
    if (result == FB_OK) result = controller->Close();
    if (result != FB_OK) {
        fb_comm_barrier(comm); /* all have heard of it: who ends before that is gone for the others */
        return failed("integrating", result, controller->GetError().c_str());
    }

    if (rank == 0) {
        vtkUnstructuredGrid *found = vtkUnstructuredGrid::SafeDownCast(integrate->GetOutput());
        std::printf("%d ranks: area %.6f\n", controller->GetNumberOfProcesses(),
                    found->GetCellData()->GetArray("Area")->GetTuple1(0));
    }
    fb_comm_close(comm);
    return EXIT_SUCCESS;
}
